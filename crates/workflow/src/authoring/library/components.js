// Components that consist of other elements, under the names and with the attributes of upstream.
// Where a later step depends on an earlier one, it is given the earlier one's output.
import { Approval, Loop, Task, Timer, Worktree } from "stockade:elements";
import { agentTask, composite, entry, invalid, lastOf, list, make, parallel, sequence, shown, worked } from "stockade:composites";
import { runOfContext } from "stockade:context";
import { text } from "stockade:prompts";
import { useCtx } from "stockade:smithers";

export const ReviewLoop = composite(
  "ReviewLoop",
  ["producer", "reviewer", "produceOutput", "reviewOutput", "maxIterations", "onMaxReached", "children"],
  ["producer", "reviewer", "produceOutput", "reviewOutput", "children"],
  ({ producer, reviewer, produceOutput, reviewOutput, maxIterations = 5, onMaxReached = "return-last", children }, id) => {
    const [work, review] = [`${id}-produce`, `${id}-review`];
    const verdict = lastOf(reviewOutput, review);
    const prompt = () => (verdict === undefined ? text(children) : `${text(children)}\n\nThe last review:\n${shown(verdict)}\n\nYour last work:\n${shown(lastOf(produceOutput, work))}`);
    return make(Loop, {
      id,
      until: verdict?.approved === true,
      maxIterations,
      onMaxReached,
      children: [
        make(Task, { id: work, output: produceOutput, agent: producer, children: prompt() }),
        agentTask({ id: review, output: reviewOutput, agent: reviewer }, "Review this work, and decide whether it is approved.", { produced: work }),
      ],
    });
  },
);

export const Optimizer = composite(
  "Optimizer",
  ["generator", "evaluator", "generateOutput", "evaluateOutput", "targetScore", "maxIterations", "onMaxReached", "children"],
  ["generator", "evaluator", "generateOutput", "evaluateOutput", "children"],
  ({ generator, evaluator, generateOutput, evaluateOutput, targetScore, maxIterations = 10, onMaxReached = "return-last", children }, id) => {
    const [candidate, score] = [`${id}-generate`, `${id}-evaluate`];
    const last = lastOf(evaluateOutput, score);
    const prompt = last === undefined ? text(children) : `${text(children)}\n\nYour last candidate:\n${shown(lastOf(generateOutput, candidate))}\n\nIts evaluation:\n${shown(last)}`;
    const evaluation =
      typeof evaluator === "function"
        ? make(Task, { id: score, output: evaluateOutput, needs: { candidate }, children: (found) => evaluator(found.candidate) })
        : agentTask({ id: score, output: evaluateOutput, agent: evaluator }, "Evaluate this candidate, and give it a score.", { candidate });
    return make(Loop, {
      id,
      until: targetScore !== undefined && last?.score >= targetScore,
      maxIterations,
      onMaxReached,
      children: [make(Task, { id: candidate, output: generateOutput, agent: generator, children: prompt }), evaluation],
    });
  },
);

export const ScanFixVerify = composite(
  "ScanFixVerify",
  ["scanner", "fixer", "verifier", "scanOutput", "fixOutput", "verifyOutput", "reportOutput", "maxConcurrency", "maxRetries", "children"],
  ["scanner", "fixer", "verifier", "scanOutput", "fixOutput", "verifyOutput", "reportOutput"],
  ({ scanner, fixer, verifier, scanOutput, fixOutput, verifyOutput, reportOutput, maxConcurrency, maxRetries = 3, children }, id) => {
    const [scan, verify] = [`${id}-scan`, `${id}-verify`];
    const issues = list(lastOf(scanOutput, scan)?.issues);
    const fixers = list(fixer);
    const verdict = lastOf(verifyOutput, verify);
    const isDone = verdict !== undefined && (verdict.resolved ?? verdict.passed ?? verdict.verified ?? verdict.allResolved) === true;
    const fixes = issues.map((issue, at) =>
      make(Task, { id: `${id}-fix-${at}`, output: fixOutput, agent: fixers[at % fixers.length], children: `Fix this problem:\n${shown(issue)}` }, at),
    );
    const loop = make(Loop, {
      id: `${id}-loop`,
      until: isDone,
      maxIterations: maxRetries,
      onMaxReached: "return-last",
      children: [
        make(Task, { id: scan, output: scanOutput, agent: scanner, children: children === undefined ? "Scan for problems, and list them as `issues`." : text(children) }),
        parallel(fixes, maxConcurrency),
        agentTask({ id: verify, output: verifyOutput, agent: verifier }, "Verify that these problems are fixed.", { scan }),
      ],
    });
    const report = agentTask({ id: `${id}-report`, output: reportOutput, agent: verifier }, "Report what was found, what was fixed, and what is left.", { scan, verify });
    return sequence(undefined, [loop, report]);
  },
);

// The panelists as agents with names, of which no two are the same.
const panelistsOf = (entries) => {
  const taken = new Set(["moderator"]);
  return list(entries).map((panelist, at) => {
    const isConfig = typeof panelist === "object" && panelist !== null && panelist.agent !== undefined;
    const { agent, label, role } = isConfig ? entry("a panelist of <Panel>", panelist, ["agent", "role", "label"]) : { agent: panelist };
    const base = label ?? role ?? `panelist-${at}`;
    let name = base;
    for (let suffix = at; taken.has(name); suffix += 1) name = `${base}-${suffix}`;
    taken.add(name);
    return { agent, role, label, name };
  });
};
const STRATEGIES = {
  synthesize: "Combine all of them into one coherent result.",
  vote: "Count how many of them agree.",
  consensus: "All of them must agree.",
};

// The attributes of the tasks of a panel.
const tuned = (given) => Object.fromEntries(Object.entries(given ?? {}).filter(([, value]) => value !== undefined));

export const Panel = composite(
  "Panel",
  ["panelists", "moderator", "panelistOutput", "moderatorOutput", "strategy", "minAgree", "maxConcurrency", "panelistTaskProps", "moderatorTaskProps", "children"],
  ["panelists", "moderator", "panelistOutput", "moderatorOutput", "children"],
  ({ panelists, moderator, panelistOutput, moderatorOutput, strategy = "synthesize", minAgree, maxConcurrency, panelistTaskProps, moderatorTaskProps, children }, id) => {
    if (STRATEGIES[strategy] === undefined) throw invalid(`<Panel> \`strategy\` must be one of ${Object.keys(STRATEGIES).join(", ")}`);
    const all = panelistsOf(panelists);
    const prompt = text(children);
    const tasks = all.map(({ agent, role, label, name }) =>
      make(Task, { ...tuned(panelistTaskProps), id: `${id}-${name}`, output: panelistOutput, agent, label: role ?? label ?? name, children: role === undefined ? prompt : `You are ${role}.\n\n${prompt}` }, name),
    );
    const least = minAgree === undefined ? "" : ` At least ${minAgree} must agree.`;
    const needs = Object.fromEntries(all.map(({ name }) => [name, `${id}-${name}`]));
    const moderation = { ...tuned(moderatorTaskProps), id: `${id}-moderator`, output: moderatorOutput, agent: moderator };
    return sequence(undefined, [parallel(tasks, maxConcurrency), agentTask(moderation, `These are the answers of a panel. ${STRATEGIES[strategy]}${least}`, needs)]);
  },
);

export const Supervisor = composite(
  "Supervisor",
  ["boss", "workers", "planOutput", "workerOutput", "reviewOutput", "finalOutput", "maxIterations", "maxConcurrency", "useWorktrees", "children"],
  ["boss", "workers", "planOutput", "workerOutput", "reviewOutput", "finalOutput", "children"],
  ({ boss, workers, planOutput, workerOutput, reviewOutput, finalOutput, maxIterations = 3, maxConcurrency = 5, useWorktrees = false, children }, id) => {
    const plan = lastOf(planOutput, `${id}-plan`);
    const review = lastOf(reviewOutput, `${id}-review`);
    const retried = review === undefined ? undefined : list(review.retriable);
    const due = list(plan?.tasks).filter((task) => retried === undefined || retried.includes(task.id));
    const unknown = due.find((task) => workers[task.workerType] === undefined);
    if (unknown !== undefined) throw invalid(`the plan of <Supervisor> has a task for "${unknown.workerType}", which is not one of \`workers\``);
    const work = due.map((task) => {
      const node = make(Task, { id: `${id}-worker-${task.id}`, output: workerOutput, agent: workers[task.workerType], continueOnFail: true, label: `${task.workerType}: ${task.id}`, children: task.instructions ?? shown(task) }, task.id);
      return useWorktrees ? make(Worktree, { path: `.worktrees/${id}-${task.id}`, branch: `worker/${id}-${task.id}`, children: node }, task.id) : node;
    });
    const needs = Object.fromEntries(list(plan?.tasks).filter((task) => lastOf(workerOutput, `${id}-worker-${task.id}`) !== undefined || due.includes(task)).map((task) => [task.id, `${id}-worker-${task.id}`]));
    const reviewed = make(Task, {
      id: `${id}-review`,
      output: reviewOutput,
      agent: boss,
      children: () =>
        `Review these results. Set allDone if all are satisfactory, and list the ids of tasks to repeat as retriable.\n\nplan:\n${shown(plan)}\n\nresults:\n${shown(Object.fromEntries(Object.entries(needs).map(([name, node]) => [name, lastOf(workerOutput, node)])))}`,
    });
    return sequence(undefined, [
      make(Task, { id: `${id}-plan`, output: planOutput, agent: boss, children }),
      make(Loop, { id: `${id}-loop`, until: review?.allDone === true, maxIterations, onMaxReached: "return-last", children: [parallel(work, maxConcurrency), reviewed] }),
      agentTask({ id: `${id}-final`, output: finalOutput, agent: boss }, "Summarize the results.", { plan: `${id}-plan`, review: `${id}-review` }),
    ]);
  },
);

export const Debate = composite(
  "Debate",
  ["proposer", "opponent", "judge", "rounds", "argumentOutput", "verdictOutput", "topic"],
  ["proposer", "opponent", "judge", "argumentOutput", "verdictOutput", "topic"],
  ({ proposer, opponent, judge, rounds = 2, argumentOutput, verdictOutput, topic }, id) => {
    const subject = text(topic);
    const before = [];
    const turns = [];
    for (let round = 1; round <= rounds; round += 1) {
      for (const [side, agent, stand] of [["proposer", proposer, "for"], ["opponent", opponent, "against"]]) {
        const node = `${id}-${side}-${round}`;
        turns.push(agentTask({ id: node, output: argumentOutput, agent }, `Argue ${stand} this, in round ${round} of ${rounds}: ${subject}`, Object.fromEntries(before)));
        before.push([`${side} ${round}`, node]);
      }
    }
    const verdict = agentTask({ id: `${id}-verdict`, output: verdictOutput, agent: judge }, `Judge this debate about: ${subject}`, Object.fromEntries(before));
    return sequence(undefined, [...turns, verdict]);
  },
);

const isPassed = (result) => result !== undefined && (result.passed ?? result.pass ?? result.ok ?? result.approved) === true;
const VERDICTS = {
  "all-pass": (passed, all) => passed === all,
  majority: (passed, all) => passed * 2 > all,
  "any-pass": (passed) => passed > 0,
};

export const CheckSuite = composite(
  "CheckSuite",
  ["checks", "verdictOutput", "strategy", "maxConcurrency", "continueOnFail"],
  ["checks", "verdictOutput"],
  ({ checks, verdictOutput, strategy = "all-pass", maxConcurrency, continueOnFail = true }, id) => {
    if (VERDICTS[strategy] === undefined) throw invalid(`<CheckSuite> \`strategy\` must be one of ${Object.keys(VERDICTS).join(", ")}`);
    const all = Array.isArray(checks) ? checks : Object.entries(checks).map(([name, check]) => ({ id: name, ...check }));
    for (const check of all) entry("a check of <CheckSuite>", check, ["id", "agent", "command", "label", "timeoutMs"]);
    const tasks = all.map(({ id: name, agent, command, label, timeoutMs }) => {
      if (agent === undefined) throw invalid(`the check "${name}" of <CheckSuite> needs \`agent\``);
      const prompt = command === undefined ? `Check this: ${label ?? name}` : `Run this check, and report whether it passed: ${command}`;
      return make(Task, { id: `${id}-${name}`, output: verdictOutput, agent, continueOnFail, timeoutMs, label: label ?? name, children: prompt }, name);
    });
    const verdict = () => {
      const results = Object.fromEntries(all.map(({ id: name }) => [name, lastOf(verdictOutput, `${id}-${name}`)]));
      const passed = Object.values(results).filter(isPassed).length;
      const isGood = VERDICTS[strategy](passed, all.length);
      return { passed: isGood, summary: `${passed} of ${all.length} checks passed`, results };
    };
    return sequence(undefined, [parallel(tasks, maxConcurrency), make(Task, { id: `${id}-verdict`, output: verdictOutput, children: withContext(verdict) })]);
  },
);

// A function that is called later with the context of the rendering.
const withContext = (call) => {
  const run = runOfContext(useCtx());
  return (...given) => run.within(() => call(...given));
};

const GROWTH = { fixed: () => 1, linear: (round) => round + 1, exponential: (round) => 2 ** round };

export const Poller = composite(
  "Poller",
  ["check", "checkOutput", "checkTimeoutMs", "maxAttempts", "backoff", "intervalMs", "onTimeout", "children"],
  ["check", "checkOutput"],
  ({ check, checkOutput, checkTimeoutMs, maxAttempts = 30, backoff = "fixed", intervalMs = 5000, onTimeout = "fail", children }, id) => {
    if (GROWTH[backoff] === undefined) throw invalid(`<Poller> \`backoff\` must be one of ${Object.keys(GROWTH).join(", ")}`);
    const node = `${id}-check`;
    const last = lastOf(checkOutput, node);
    const round = useCtx().iterations[id] ?? 0;
    const isMet = last?.satisfied === true;
    const pause = make(Timer, { id: `${id}-wait`, duration: intervalMs * GROWTH[backoff](round), skipIf: isMet });
    return make(Loop, {
      id,
      until: isMet,
      maxIterations: maxAttempts,
      onMaxReached: onTimeout,
      children: [worked({ id: node, output: checkOutput, timeoutMs: checkTimeoutMs }, check, children ?? "Check whether the condition is satisfied."), pause],
    });
  },
);

export const Runbook = composite(
  "Runbook",
  ["steps", "defaultAgent", "stepOutput", "approvalRequest", "onDeny"],
  ["steps", "stepOutput"],
  ({ steps, defaultAgent, stepOutput, approvalRequest, onDeny = "fail" }, id) => {
    for (const step of list(steps)) entry("a step of <Runbook>", step, ["id", "agent", "command", "risk", "label", "output"]);
    const made = list(steps).flatMap(({ id: name, agent = defaultAgent, command, risk, label, output }) => {
      if (agent === undefined) throw invalid(`the step "${name}" of <Runbook> needs \`agent\`, or <Runbook> \`defaultAgent\``);
      if (!["safe", "risky", "critical"].includes(risk)) throw invalid(`the \`risk\` of step "${name}" of <Runbook> must be safe, risky or critical`);
      const gate = `${id}-${name}-approval`;
      const decision = risk === "safe" ? undefined : lastOf(gate, gate);
      const request = { title: label ?? `Run ${name}?`, summary: command, ...approvalRequest };
      const approval = make(Approval, { id: gate, output: gate, request, onDeny: onDeny === "skip" ? "continue" : "fail" }, gate);
      const step = make(Task, { id: `${id}-${name}`, output: output ?? stepOutput, agent, label: label ?? name, skipIf: decision?.approved === false, children: command ?? label ?? name }, name);
      return risk === "safe" ? [step] : [approval, step];
    });
    return sequence(undefined, made);
  },
);

export const DecisionTable = composite("DecisionTable", ["rules", "default", "strategy"], ["rules"], ({ rules, default: otherwise = null, strategy = "first-match" }) => {
  if (!["first-match", "all-match"].includes(strategy)) throw invalid("<DecisionTable> `strategy` must be first-match or all-match");
  for (const rule of list(rules)) entry("a rule of <DecisionTable>", rule, ["when", "then", "label"]);
  const met = list(rules).filter(({ when }) => (typeof when === "function" ? when(useCtx()) : when) === true);
  if (met.length === 0) return otherwise;
  return strategy === "first-match" ? met[0].then : parallel(met.map(({ then }) => then));
});

export const EscalationChain = composite(
  "EscalationChain",
  ["levels", "humanFallback", "humanRequest", "escalationOutput", "children"],
  ["levels", "escalationOutput"],
  ({ levels, humanFallback = false, humanRequest, escalationOutput, children }, id) => {
    const run = runOfContext(useCtx());
    const parts = [];
    let isOpen = true;
    for (const level of levels) entry("a level of <EscalationChain>", level, ["agent", "output", "label", "escalateIf"]);
    for (const [at, { agent, output, label, escalateIf }] of levels.entries()) {
      if (!isOpen) break;
      const group = `${id}:level-${at}`;
      const node = `${id}-level-${at}`;
      parts.push(sequence(group, [make(Task, { id: node, output, agent, continueOnFail: true, label: label ?? `level ${at}`, children })]));
      const result = run.lastOf(output, node);
      const hasFailed = run.failureIn(group) !== undefined;
      isOpen = hasFailed || (result !== undefined && escalateIf?.(result) === true);
      if (!isOpen) continue;
      const isLast = at + 1 === levels.length;
      const value = { escalated: true, fromLevel: at, toLevel: at + 1 };
      if (!isLast || humanFallback) parts.push(make(Task, { id: `${id}-escalation-${at}`, output: escalationOutput, continueOnFail: true, children: () => value }));
    }
    if (isOpen && humanFallback) {
      const request = humanRequest ?? { title: "Escalation requires a decision", summary: `All ${levels.length} levels were exhausted.` };
      parts.push(make(Approval, { id: `${id}-human`, output: `${id}-human`, request, onDeny: "continue" }));
    }
    return sequence(undefined, parts);
  },
);

export const ClassifyAndRoute = composite(
  "ClassifyAndRoute",
  ["items", "categories", "classifierAgent", "classifierOutput", "routeOutput", "classificationResult", "maxConcurrency", "children"],
  ["items", "categories", "classifierAgent", "classifierOutput", "routeOutput"],
  ({ items, categories, classifierAgent, classifierOutput, routeOutput, classificationResult, maxConcurrency, children }, id) => {
    const classify = `${id}-classify`;
    const found = classificationResult ?? lastOf(classifierOutput, classify);
    const prompt = `${children === undefined ? "Classify these items." : text(children)}\n\ncategories: ${Object.keys(categories).join(", ")}\n\nitems:\n${shown(items)}`;
    const routes = list(found?.classifications ?? found?.category?.constructor === String ? (found.classifications ?? [found]) : []).map((classified, at) => {
      const route = categories[classified.category];
      if (route === undefined) throw invalid(`<ClassifyAndRoute> has no category "${classified.category}"`);
      const isConfig = typeof route === "object" && route !== null && route.agent !== undefined;
      const { agent, output, prompt: own } = isConfig ? entry("a category of <ClassifyAndRoute>", route, ["agent", "output", "prompt"]) : { agent: route };
      const name = classified.itemId ?? at;
      const content = typeof own === "function" ? own(classified) : own;
      return make(Task, { id: `${id}-${classified.category}-${name}`, output: output ?? routeOutput, agent, continueOnFail: true, children: content ?? `Handle this item:\n${shown(classified)}` }, name);
    });
    return sequence(undefined, [make(Task, { id: classify, output: classifierOutput, agent: classifierAgent, children: prompt }), parallel(routes, maxConcurrency)]);
  },
);

export const GatherAndSynthesize = composite(
  "GatherAndSynthesize",
  ["sources", "synthesizer", "gatherOutput", "synthesisOutput", "gatheredResults", "maxConcurrency", "synthesisPrompt", "children"],
  ["sources", "synthesizer", "gatherOutput", "synthesisOutput"],
  ({ sources, synthesizer, gatherOutput, synthesisOutput, gatheredResults, maxConcurrency, synthesisPrompt, children }, id) => {
    const all = Object.entries(sources);
    for (const [, source] of all) entry("a source of <GatherAndSynthesize>", source, ["agent", "prompt", "output", "children"]);
    const gather = all.map(([name, { agent, prompt, output, children: own }]) =>
      make(Task, { id: `${id}-${name}`, output: output ?? gatherOutput, agent, label: name, children: prompt ?? own ?? `Gather what is known from ${name}.` }, name),
    );
    const content = synthesisPrompt ?? (children === undefined ? "Synthesize these findings." : text(children));
    const needs = Object.fromEntries(all.map(([name]) => [name, `${id}-${name}`]));
    const prompt = gatheredResults ? `${content}\n\n${shown(gatheredResults)}` : content;
    return sequence(undefined, [parallel(gather, maxConcurrency), agentTask({ id: `${id}-synthesis`, output: synthesisOutput, agent: synthesizer }, prompt, needs)]);
  },
);

export const ContentPipeline = composite("ContentPipeline", ["stages", "children"], ["stages", "children"], ({ stages, children }, id) => {
  let before;
  for (const stage of list(stages)) entry("a stage of <ContentPipeline>", stage, ["id", "agent", "output", "label", "prompt"]);
  const made = list(stages).map(({ id: name, agent, output, label, prompt }) => {
    const node = `${id}-${name}`;
    const own = prompt ?? (before === undefined ? children : `Continue with the stage ${label ?? name}.`);
    const task = agentTask({ id: node, output, agent, label: label ?? name }, own, before === undefined ? {} : { previous: before });
    before = node;
    return task;
  });
  return sequence(undefined, made);
});

export const DriftDetector = composite(
  "DriftDetector",
  ["captureAgent", "compareAgent", "captureOutput", "compareOutput", "baseline", "alertIf", "alert", "poll"],
  ["captureAgent", "compareAgent", "captureOutput", "compareOutput", "baseline"],
  ({ captureAgent, compareAgent, captureOutput, compareOutput, baseline, alertIf, alert, poll }, id) => {
    const [capture, compare] = [`${id}-capture`, `${id}-compare`];
    const result = lastOf(compareOutput, compare);
    const hasDrifted = result !== undefined && (alertIf === undefined ? result.drifted === true : alertIf(result) === true);
    const parts = [
      make(Task, { id: capture, output: captureOutput, agent: captureAgent, children: "Capture the current state." }),
      make(Task, {
        id: compare,
        output: compareOutput,
        agent: compareAgent,
        needs: { current: capture },
        children: async (found) => `Compare the current state with the baseline.\n\nbaseline:\n${shown(typeof baseline === "function" ? await baseline() : baseline)}\n\ncurrent:\n${shown(found.current)}`,
      }),
      hasDrifted ? alert : null,
    ];
    if (poll === undefined) return sequence(undefined, parts);
    entry("`poll` of <DriftDetector>", poll, ["intervalMs", "maxPolls"]);
    const pause = make(Timer, { id: `${id}-wait`, duration: poll.intervalMs });
    return make(Loop, { id, until: hasDrifted, maxIterations: poll.maxPolls ?? 100, onMaxReached: "return-last", children: [...parts, pause] });
  },
);

export const Kanban = composite(
  "Kanban",
  ["columns", "useTickets", "agents", "maxConcurrency", "onComplete", "until", "maxIterations", "children"],
  ["columns", "useTickets"],
  ({ columns, useTickets, agents, maxConcurrency, onComplete, until = false, maxIterations = 5, children }, id) => {
    const tickets = useTickets();
    for (const column of columns) entry("a column of <Kanban>", column, ["name", "agent", "output", "prompt", "task"]);
    const board = columns.map(({ name, agent: own, output, prompt, task = {} }) => {
      const agent = agents?.[name] ?? own;
      const tasks = tickets.map((item) => {
        const content = prompt === undefined ? `Process this item in the column "${name}":\n${shown(item)}` : prompt({ item, column: name });
        return make(Task, { continueOnFail: true, label: `${name}: ${item.id}`, ...task, id: `${id}-${name}-${item.id}`, output, agent, children: content }, item.id);
      });
      return parallel(tasks, maxConcurrency);
    });
    const loop = make(Loop, { id: `${id}-loop`, until, maxIterations, onMaxReached: "return-last", children: board });
    if (onComplete === undefined) return loop;
    return sequence(undefined, [loop, make(Task, { id: `${id}-complete`, output: onComplete, label: "Board complete", children: children ?? { items: tickets.length } })]);
  },
);

export const ApprovalGate = (props) => {
  const { when, ...rest } = props;
  if (typeof when !== "boolean") throw invalid("<ApprovalGate> needs `when`, true or false");
  if (props.skipIf === true) return null;
  if (when) return make(Approval, rest);
  const { id, output, continueOnFail } = props;
  return make(Task, { id, output, continueOnFail, children: () => ({ approved: true, note: "no approval was needed", decidedBy: null, decidedAt: null }) });
};

// The first task has the component's id, so that others can wait for it; the second one is only compared.
export const Sidecar = composite(
  "Sidecar",
  ["agent", "sidecar", "output", "sidecarOutput", "scorers", "prompt", "input", "maxConcurrency", "groundTruth", "context", "primaryLabel", "sidecarLabel", "children"],
  ["agent", "sidecar", "output"],
  ({ agent, sidecar, output, sidecarOutput = output, scorers, prompt, input, maxConcurrency, groundTruth, context, primaryLabel, sidecarLabel, children }, id) => {
    const shared = { scorers, groundTruth, context, children: prompt ?? input ?? children };
    return parallel(
      [
        make(Task, { ...shared, id, output, agent, label: primaryLabel }),
        make(Task, { ...shared, id: `${id}-sidecar`, output: sidecarOutput, agent: sidecar, continueOnFail: true, label: sidecarLabel }),
      ],
      maxConcurrency,
    );
  },
);

// An agent that changes files by a strategy. The run itself continues with the program with which it was started.
export const SuperSmithers = composite(
  "SuperSmithers",
  ["strategy", "agent", "targetFiles", "reportOutput", "dryRun"],
  ["strategy", "agent"],
  ({ strategy, agent, targetFiles, reportOutput, dryRun = false }, id) => {
    const files = list(targetFiles);
    const [analysis, change] = [`${id}-read`, `${id}-propose`];
    const meant = files.length === 0 ? "all files of the project" : files.join(", ");
    const asked = dryRun
      ? "Propose changes, and list each file with its current and its new text. Do not change any file."
      : "Make the changes in these files now, and list each file that you changed with a short description.";
    return sequence(id, [
      make(Task, { id: analysis, output: analysis, agent, children: `Read the files, and find which changes this strategy needs.\n\nstrategy:\n${text(strategy)}\n\nfiles: ${meant}` }),
      agentTask({ id: change, output: change, agent }, asked, { analysis }),
      agentTask({ id: `${id}-report`, output: reportOutput ?? `${id}-report`, agent }, `Report what was analyzed, and which changes were ${dryRun ? "proposed" : "made"}.`, { analysis, changes: change }),
    ]);
  },
);

//! Compares what the workers have seen with the database.
//!
//! Each operation adds one to a counter and gets its value. So the values are the order in which the
//! operations took effect, if there is such an order at all: the history is linearizable exactly if no two
//! operations have the same value, no value is missing, and an operation that was answered before another one
//! was requested has the lower value. No search is needed, and no operation is left out: one whose answer was
//! lost may have taken effect at any time after its request.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::Failure;
use crate::clocks;
use crate::database::Database;
use crate::log::{self, Line};
use crate::worker::LIMITS;

/// What was seen of the queue while the cluster worked.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    faults: Vec<String>,
}

impl Samples {
    /// Adds what is wrong.
    pub(crate) fn fault(&mut self, fault: String) {
        self.faults.push(fault);
    }

    /// Counts what the queue has released at this moment.
    pub(crate) fn take(&mut self, database: &Database) {
        let sql = "SELECT executor_id, executor_incarnation, count(*) FROM workflow_status \
                   WHERE queue_name = 'shared' AND status = 'PENDING' GROUP BY 1, 2";
        // The tables may not be there yet.
        let Ok(rows) = database.sql(sql) else { return };
        let counts = rows.iter().filter_map(|row| row.get(2)?.parse::<u32>().ok());
        let counts: Vec<_> = counts.collect();
        let all: u32 = counts.iter().sum();
        let (most, most_of_one) = LIMITS;
        if all > most || counts.iter().any(|count| *count > most_of_one) {
            self.faults.push(format!("the queue has released {counts:?}, above {LIMITS:?}"));
        }
    }
}

/// The result of the comparison.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    pub(crate) workflows: usize,
    pub(crate) taken_over: usize,
    pub(crate) steps: usize,
    pub(crate) repeated: usize,
    /// How many effects of steps came after others had taken the workflow over and recorded the step.
    pub(crate) late: usize,
    pub(crate) operations: usize,
    /// How often a worker has found its wall clock set.
    pub(crate) clocks: usize,
    pub(crate) faults: Vec<String>,
}

impl Audit {
    pub(crate) fn new(dir: &Path, database: &Database, seen: &Samples) -> Result<Self, Failure> {
        let mut audit = Self { faults: seen.faults.clone(), ..Self::default() };
        let lines = log::read(dir)?;
        let truth = clocks::offset_ms();
        audit.clocks = lines
            .iter()
            .filter(|line| matches!(line, Line::Clock(offset) if clocks::was_set(*offset, truth)))
            .count();
        audit.workflows(database)?;
        audit.steps(&lines, database)?;
        audit.history(&lines, database)?;
        Ok(audit)
    }

    /// Each workflow ended well and did everything once.
    fn workflows(&mut self, database: &Database) -> Result<(), Failure> {
        let sql = "SELECT workflow_uuid, status, recovery_attempts, \
                   (SELECT count(*) FROM deeds WHERE deed = workflow_uuid), \
                   (SELECT count(*) FROM operation_outputs AS o WHERE o.workflow_uuid = w.workflow_uuid) \
                   FROM workflow_status AS w";
        for row in database.sql(sql)? {
            let [id, status, attempts, deeds, steps] = row.as_slice() else { continue };
            self.workflows += 1;
            self.taken_over += usize::from(attempts != "1");
            if status != "SUCCESS" || deeds != "1" || steps != "3" {
                self.faults.push(format!("workflow {id}: {status}, {deeds} deeds, {steps} steps"));
            }
        }
        // No orphan: nothing belongs to a workflow that is not there.
        for table in
            ["history WHERE workflow", "deeds WHERE deed", "operation_outputs WHERE workflow_uuid"]
        {
            let sql = format!(
                "SELECT count(*) FROM {table} NOT IN (SELECT workflow_uuid FROM workflow_status)"
            );
            let rows = database.sql(&sql)?;
            if rows.first().and_then(|row| row.first()).map(String::as_str) != Some("0") {
                self.faults.push(format!("{table}: rows of unknown workflows: {rows:?}"));
            }
        }
        Ok(())
    }

    /// Each promised record is there, and no step ran again after its record was promised.
    ///
    /// A process that was paused in the middle of a step may have its effect when another one has taken the
    /// workflow over and recorded the step: no process can know how long it was paused. It does nothing more
    /// of that workflow.
    fn steps(&mut self, lines: &[Line], database: &Database) -> Result<(), Failure> {
        let rows =
            database.sql("SELECT workflow_uuid || ':' || function_id FROM operation_outputs")?;
        let stored: HashSet<_> = rows.into_iter().filter_map(|mut row| row.pop()).collect();
        self.steps = stored.len();
        let (mut recorded, mut effects) = (HashMap::new(), HashMap::new());
        // The runs of workflows that others have taken over.
        let mut lost = HashSet::new();
        for line in lines {
            let (Line::Effect(key, run) | Line::Recorded(key, run)) = line else { continue };
            let workflow = key.rsplit_once(':').map_or(key.as_str(), |(workflow, _)| workflow);
            if lost.contains(&(workflow, *run)) {
                self.faults
                    .push(format!("run {run} of {workflow} went on after it was taken over"));
            }
            match line {
                Line::Effect(..) => {
                    *effects.entry(key).or_insert(0_usize) += 1;
                    match recorded.get(key) {
                        None => {}
                        Some(by) if by <= run => {
                            self.faults.push(format!("step {key} ran again after its record"));
                        }
                        Some(_) => {
                            self.late += 1;
                            lost.insert((workflow, *run));
                        }
                    }
                }
                _ => {
                    recorded.entry(key).or_insert(*run);
                    if !stored.contains(key) {
                        self.faults.push(format!("the record of step {key} is lost"));
                    }
                }
            }
        }
        self.repeated = effects.values().filter(|count| **count > 1).count();
        for key in stored.iter().filter(|key| !effects.contains_key(key)) {
            self.faults.push(format!("step {key} has a record and no effect"));
        }
        Ok(())
    }

    /// The history of the operations is linearizable.
    fn history(&mut self, lines: &[Line], database: &Database) -> Result<(), Failure> {
        let mut values = HashMap::new();
        for row in database.sql("SELECT workflow, value FROM history ORDER BY value")? {
            let [id, value] = row.as_slice() else { continue };
            values.insert(id.clone(), value.parse::<u64>()?);
        }
        self.operations = values.len();
        let mut sorted: Vec<_> = values.values().copied().collect();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(1..=values.len() as u64) {
            self.faults.push("the values of the operations are not 1, 2, 3 …".to_owned());
        }
        // By value: when it was requested, and when it was answered.
        let mut times: Vec<(u64, u64)> = vec![(0, u64::MAX); values.len() + 1];
        for line in lines {
            match line {
                Line::Requested(id, at) => {
                    let entry = values.get(id).and_then(|value| times.get_mut(index(*value)));
                    if let Some(entry) = entry {
                        entry.0 = *at;
                    }
                }
                Line::Answered(id, at, value) => {
                    if values.get(id) != Some(value) {
                        self.faults.push(format!("the answer of operation {id} is lost"));
                    } else if let Some(entry) = times.get_mut(index(*value)) {
                        entry.1 = *at;
                    }
                }
                Line::Effect(..) | Line::Recorded(..) | Line::Delayed(..) | Line::Clock(_) => {}
            }
        }
        for line in lines {
            // However the clocks of the processes are set that request it, see that its time has come, and execute it.
            if let Line::Delayed(id, delay) = line
                && let Some((requested, answered)) =
                    values.get(id).and_then(|value| times.get(index(*value)))
                && answered.saturating_sub(*requested) < delay * 1_000_000
            {
                self.faults.push(format!("the operation {id} did not wait for {delay} ms"));
            }
        }
        // From the last one down: none that follows was answered before this one was requested.
        let mut first_answer = u64::MAX;
        for (value, (requested, answered)) in times.iter().enumerate().skip(1).rev() {
            if first_answer < *requested {
                self.faults.push(format!(
                    "the operation with value {value} was requested after a later one was answered"
                ));
            }
            first_answer = first_answer.min(*answered);
        }
        Ok(())
    }
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

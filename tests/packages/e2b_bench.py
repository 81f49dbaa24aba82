"""Measures what a client of E2B waits for: create, one command, kill; one after the other, staggered and at once.

Called as: e2b_bench.py ROUNDS. Prints JSON with the milliseconds of each part.
"""

import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from e2b import Sandbox

# How many sandboxes there are at once, and how far apart staggered ones begin, in seconds.
CROWD = 20
STAGGER = 0.2


def once(delay=0.0):
    time.sleep(delay)
    begin = time.monotonic()
    sandbox = Sandbox.create(timeout=120)
    created = time.monotonic()
    sandbox.commands.run("true")
    ran = time.monotonic()
    sandbox.kill()
    killed = time.monotonic()
    return {
        "create": created - begin,
        "run": ran - created,
        "kill": killed - ran,
        "interactive": ran - begin,
        "total": killed - begin,
    }


def summary(rounds):
    def percentiles(values):
        ordered = sorted(value * 1000 for value in values)
        last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
        return {"median": round(statistics.median(ordered), 1), "p95": round(last, 1)}

    return {part: percentiles([one[part] for one in rounds]) for part in rounds[0]}


def main():
    count = int(sys.argv[1])
    for _ in range(3):
        once()
    report = {"sequential": summary([once() for _ in range(count)])}
    with ThreadPoolExecutor(CROWD) as pool:
        staggered = pool.map(once, [at * STAGGER for at in range(CROWD)])
        report["staggered"] = summary(list(staggered))
        report["burst"] = summary(list(pool.map(once, [0.0] * CROWD)))
    print(json.dumps(report))


if __name__ == "__main__":
    main()

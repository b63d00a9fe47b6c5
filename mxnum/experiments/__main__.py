"""Temporary."""
import sys
from pathlib import Path
from mxnum.experiments import studies, sweep

if __name__ == "__main__":
    name, root, processes = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    study = studies.get(name)
    arms = dict(study.arms)
    if len(sys.argv) > 4:
        arms = {a: e for a, e in arms.items() if any(k in a for k in sys.argv[4].split(";"))}
    seeds = range(studies.FIRST_SEED, studies.FIRST_SEED + study.seeds)
    tasks = sweep.tasks_for(arms, seeds, root / name, stack=4, measure_every=study.measure_every)
    print(len(tasks), "tasks", flush=True)
    failed = sweep.run_all(tasks, processes=processes, niceness=0, say=lambda s: print(s, flush=True))
    print("failed", failed)

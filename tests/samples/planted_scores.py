"""Checks the arithmetic of samples/planted/score.py and record.py on made-up reports.

    python3 planted_scores.py samples/planted
"""
import pathlib
import sys

sys.path[:0] = [sys.argv[1], str(pathlib.Path(__file__).resolve().parents[1] / "support")]
from harness import check, check_equal, finish  # noqa: E402
from record import difference, limit_of, objection, parse_seeds  # noqa: E402
from score import judge, names_line, remarks, summarise  # noqa: E402

PEAK = 1000


def truth(seed, cause, **more):
    return {"seed": seed, "cause": cause, "also": [], "advice": [], "steps": 10,
            "measure": "allocated",
            "lines": [{"file": "train.py", "line": 41, "text": "x"}] if cause else [],
            "options": {"family": "mlp", "variant": ""}, "saving": None, "unlimited": None,
            "measured": {"allocated_peak": PEAK, "labels": {}}, **more}


def finding(name, severity="warning", frames=(), advice=()):
    return {"id": name, "severity": severity, "evidence": {"frames": list(frames)},
            "advice": [{"action": action, "saves_bytes": size} for action, size in advice]}


def report(*findings, steps=10, categories=(), peak=PEAK):
    device = {"allocated_peak": {"bytes": peak}, "steps": {"count": steps, "source": "marks"},
              "by_category": [{"category": name, "bytes": size} for name, size in categories]}
    idle = {"allocated_peak": {"bytes": 0}, "steps": None, "by_category": []}
    return {"findings": list(findings), "ranks": [{"devices": [idle]}, {"devices": [device]}]}


frame = ["forward site-packages/torch/nn/modules/linear.py:134", "step /home/me/out/train.py:41"]
judged = [
    judge(truth(1, "creep", saving=100, advice=["release_growth"]),
          report(finding("creep", frames=frame, advice=[("other", 500), ("release_growth", 110)]))),
    judge(truth(2, "creep", saving=100),
          report(finding("creep", "info", ["step train.py:410"], [("detach", 150)]), steps=11)),
    judge(truth(3, "creep"), report(finding("retained_graph"))),
    judge(truth(4, "capacity", also=["memory_fraction"], steps="unknown", lines=[]),
          report(finding("capacity", "error"), finding("memory_fraction", "error"))),
    judge(truth(5, None), report(finding("creep"), finding("other_process"))),
    judge(truth(6, None, steps=None), report(finding("activation_peak", "info"), steps=1)),
    judge(truth(7, None, steps=None, measured={
        "allocated_peak": PEAK, "labels": {"parameter": 400, "gradient": 100}}),
        report(steps=32, categories=[("parameter", 300), ("gradient", 200), ("activation", 500)])),
    judge(truth(8, None, measured={"allocated_peak": PEAK, "labels": {"parameter": 400}}),
          report(peak=PEAK // 2, categories=[("parameter", 1)])),
]
summary = summarise(judged)
check_equal(summary["programs"], 8, "programs")
check_equal(summary["healthy"], 4, "healthy programs")
check_equal(summary["healthy_with_alarm"], 1, "healthy programs with a warning")
check_equal(summary["healthy_with_note"], 1, "healthy programs with a note")
check_equal(summary["confusion"], {
    "capacity": {"capacity": 1}, "creep": {"creep": 2, "retained_graph": 1},
    "healthy": {"creep": 1, "activation_peak": 1, "nothing": 2}}, "confusion matrix")
creep = summary["findings"]["creep"]
check_equal([creep[n] for n in ("cases", "found", "only_note", "false_alarms")], [3, 2, 1, 1],
            "counts of creep")
check_equal((creep["recall"], creep["precision"]), (2 / 3, 2 / 3), "recall and precision of creep")
check_equal((creep["lines_named"], creep["lines_possible"]), (1, 2), "lines named")
check_equal(summary["findings"]["retained_graph"]["precision"], 0, "a finding that is only wrong")
check("memory_fraction" not in summary["findings"], "a companion of the cause is not false")
check("other_process" not in summary["findings"], "what is true of the card is not false")
check_equal(summary["steps"], {"known": 7, "exact": 5, "within_one": 6, "none": 2, "none_right": 1,
                               "counted": 5, "counted_within_one": 5}, "steps")
check_equal(summary["categories"], {"mlp": {"parameter": (300, 400), "gradient": (100, 200),
                                            "all": (400, 600)}}, "categories")
check_equal(summary["savings"]["compared"], 2, "savings compared")
check(abs(summary["savings"]["median_error"] - 0.3) < 1e-9, "median error of 10 % and 50 %")
check_equal(summary["savings"]["within"], 0.5, "savings within 15 %")
check("missed creep" in list(remarks(judged[2])), "a miss is remarked on")
check_equal(list(remarks(judged[0])), [], "nothing to remark on")
check(not names_line(finding("creep", frames=["f retrain.py:41"]), truth(1, "creep")["lines"]),
      "another file with the same ending")

check_equal(parse_seeds("0-2,7"), [0, 1, 2, 7], "seeds")
used = {"allocated_peak": 1000, "reserved_peak": 1200, "total_memory": 10000}
check_equal(limit_of({"limit": "below_allocated"}, used), (850.0, None), "limit below the need")
check_equal(limit_of({"limit": "share"}, used), (None, 0.085), "share of the card")
check_equal(limit_of({"limit": "in_step"}, used), (920.0, None), "limit that most steps keep")
check_equal(difference({"measure": "reserved"}, used, {"reserved_peak": 700}), 500, "saving")
check_equal(difference({"measure": None}, used, used), None, "nothing to save")
ran = {"cause": "creep", "expect_oom": False, "saving": 500, "measure": "allocated",
       "measured": {"oom": False, "oom_verdict": None, "allocated_peak": 1000}}
check_equal(objection(ran), None, "a valid recording")
check("saves only" in objection({**ran, "saving": 10}), "a cause without effect")
check_equal(objection({**ran, "expect_oom": True}), "did not run out of memory", "no error")
finish()

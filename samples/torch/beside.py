"""Runs torch's own tools together with tidemark: none of them may be affected. Needs a GPU.

    tidemark run -o OUT -- python3 samples/torch/beside.py history
    TIDEMARK_CUPTI=0 tidemark run -o OUT -- python3 samples/torch/beside.py profiler
    tidemark run -o OUT -- python3 samples/torch/beside.py ranges

Exits with status 1 and a message if something is missing.
"""
import pickle
import sys
import tempfile

import torch


def work():
    model = torch.nn.Linear(1024, 1024).cuda()
    for _ in range(3):
        model(torch.randn(64, 1024, device="cuda")).sum().backward()


def history():
    torch.cuda.memory._record_memory_history()
    work()
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        torch.cuda.memory._dump_snapshot(file.name)
        snapshot = pickle.load(open(file.name, "rb"))
    actions = [entry["action"] for entry in snapshot["device_traces"][0]]
    allocated = sum(block["size"] for segment in snapshot["segments"]
                    for block in segment["blocks"] if block["state"] == "active_allocated")
    framed = sum(1 for entry in snapshot["device_traces"][0] if entry.get("frames"))
    return (actions.count("alloc") > 5 and framed > 5
            and allocated == torch.cuda.memory_allocated())


def profiler():
    from torch.profiler import ProfilerActivity, profile
    work()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as result:
        work()
        torch.cuda.synchronize()
    kernels = [event for event in result.events()
               if event.device_type == torch.autograd.DeviceType.CUDA]
    return len(kernels) > 5


def ranges():
    for step in range(3):
        torch.cuda.nvtx.range_push(f"step {step}")
        with torch.autograd.profiler.record_function("inside"):
            work()
        torch.cuda.nvtx.range_pop()
    torch.cuda.nvtx.mark("end")
    return True


if __name__ == "__main__":
    fine = {"history": history, "profiler": profiler, "ranges": ranges}[sys.argv[1]]()
    print(sys.argv[1], "same as without tidemark" if fine else "INCOMPLETE")
    sys.exit(0 if fine else 1)

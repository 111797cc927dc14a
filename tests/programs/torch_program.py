"""The Python part of the stand-in for PyTorch (simgpu/torch), and the programs that tests record.

    python3 torch_program.py PROGRAM TORCH_DIRECTORY [ARGUMENT …]
"""
import ctypes
import glob
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
import types


class Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "allocated", "allocated_peak", "requested", "requested_peak", "reserved", "reserved_peak",
        "ooms")]


class Torch:
    def __init__(self, directory):
        self.cpu, self.cuda = (ctypes.CDLL(os.path.realpath(f"{directory}/lib/{name}.so"))
                               for name in ("libtorch_cpu", "libc10_cuda"))
        self.cuda.standin_alloc.restype = ctypes.c_uint64
        self.cuda.standin_alloc.argtypes = [ctypes.c_size_t, ctypes.c_uint64]
        self.cuda.standin_worker.restype = ctypes.c_uint64
        self.cuda.standin_worker.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_int]
        self.cuda.standin_backward.restype = ctypes.c_uint64
        self.cuda.standin_backward.argtypes = [ctypes.c_size_t, ctypes.c_uint64, ctypes.c_uint64]
        for name in ("make_node", "thread"):
            getattr(self.cpu, f"standin_{name}").restype = ctypes.c_uint64
        self.cpu.standin_run_node.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
        for name in ("free", "record_stream"):
            getattr(self.cuda, f"standin_{name}").argtypes = [ctypes.c_uint64]
        self.cuda.standin_set_limit.argtypes = [ctypes.c_size_t]
        self.cuda.standin_set_fraction.argtypes = [ctypes.c_double]
        self.cuda.standin_use_pool.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
        self.cuda.standin_init()

    def __getattr__(self, name):
        return getattr(self.cuda, f"standin_{name}")

    def alloc(self, size, stream=0):
        return self.cuda.standin_alloc(size, stream)

    def truth(self):
        stats = Stats()
        self.cuda.standin_stats(ctypes.byref(stats))
        return {name: getattr(stats, name) for name, _ in Stats._fields_}


def write_json(variable, value):
    if os.environ.get(variable):
        with open(os.environ[variable], "w", encoding="utf-8") as file:
            json.dump(value, file)


def churn(torch):
    """Random calls of everything that the allocator offers."""
    dice = random.Random(7)
    live = []
    for i in range(3000):
        if live and dice.random() < 0.48:
            block = live.pop(dice.randrange(len(live)))
            if dice.random() < 0.1:
                torch.record_stream(block)
            torch.free(block)
        else:
            size = dice.choice([dice.randrange(1, 4000), dice.randrange(1, 1 << 20),
                                dice.randrange(1 << 20, 30 << 20)])
            torch.use_pool(*((0, 5) if dice.random() < 0.1 else (0, 0)))
            live.append(torch.alloc(size, dice.choice([0, 0, 0, 0x77])))
        if i % 500 == 499:
            torch.process_events()
        if i % 1000 == 999:
            torch.empty_cache()
    for block in live[::2]:
        torch.free(block)


def thrash(torch):
    """Empties the cache in every step; tells the line that does."""
    for _ in range(6):
        for block in [torch.alloc(40 << 20) for _ in range(3)]:
            torch.free(block)
        line = sys._getframe().f_lineno + 1
        torch.empty_cache()
    write_json("TOLD", line)


def lines(torch):
    """Allocations from every kind of frame, with the locations that Python reports."""
    told = []

    def note(size):
        told.append([size] + [f"{f.name} {f.lineno}" for f in reversed(traceback.extract_stack()[:-1])])
        return torch.alloc(size)

    def plain():
        return note(1 << 10)

    def several_lines(
            first,
            second):
        return [
            note(first),
            (note
             )(second),
        ]

    def generator():
        yield note(3 << 10)
        yield note(4 << 10)

    class Module:
        def forward(self, depth):
            if depth == 0:
                return note(5 << 10)
            return self.forward(
                depth - 1)

        def __call__(self, depth):
            return self.forward(depth)

    plain()
    several_lines(2 << 10, 6 << 10)
    list(generator())
    Module()(40)
    (lambda: note(7 << 10))()
    [note(size) for size in (8 << 10, 9 << 10)]
    exec(compile("\n\n\nnote(10 << 10)\n", "<made up>", "exec"), {"note": note})
    exec(compile("# ü\ndef größe():\n    note(11 << 10)\ngröße()\n", "größe.py", "exec"),
         {"note": note})
    try:
        raise ValueError
    except ValueError:
        note(12 << 10)
    # Code objects that are created and freed, often at the same address.
    for i in range(50):
        space = {"note": note}
        exec(compile("\n" * (i % 7) + f"def made_{i}():\n    note({(100 + i) << 10})\nmade_{i}()\n",
                     "<loop>", "exec"), space)
        del space
    write_json("TOLD", told)


def calls(torch):
    """Allocations from chains of calls that change in random places, with the locations that Python
    reports."""
    told = []
    dice = random.Random(11)

    def note():
        size = (len(told) + 1) << 9
        told.append([size] + [f"{f.name} {f.lineno}" for f in reversed(traceback.extract_stack())])
        torch.free(torch.alloc(size))

    def onward(depth):
        if dice.random() < 0.3:
            note()
        if depth > 0:
            dice.choice(ways)(depth - 1)
        if dice.random() < 0.3:
            note()

    def twice(depth):
        onward(depth)
        if depth < 6:
            onward(depth)

    def generator(depth):
        yield onward(depth)
        yield note()

    def made(depth):
        space = {"onward": onward}
        lines = dice.randrange(5)
        exec(compile("\n" * lines + "def same(depth):\n    onward(depth)\n", "<made>", "exec"), space)
        space["same"](depth)

    def through_c(depth):
        list(map(onward, [depth]))

    ways = [onward, onward, twice, lambda depth: list(generator(depth)), made, through_c,
            lambda depth: onward(depth)]
    while len(told) < 1500:
        onward(dice.choice([3, 8, 20, 60]))
    sys.setrecursionlimit(5000)
    onward(400)
    note()
    write_json("TOLD", told)


def workers(torch):
    torch.worker(64 << 10, 3, 1)
    torch.worker(128 << 10, 3, 0)
    thread = threading.Thread(target=lambda: torch.alloc(256 << 10), name="python-thread")
    thread.start()
    thread.join()


def nodes(torch):
    """Allocations inside a backward node, which must be freed afterwards."""
    torch.worker(64 << 10, 50, 1)
    print("live nodes", torch.cpu.standin_live_nodes(), flush=True)


def forked(torch):
    torch.alloc(1 << 20)
    child = os.fork()
    if child == 0:
        print("child", flush=True)
        os._exit(3)
    status = os.waitpid(child, 0)[1]
    torch.alloc(2 << 20)
    print("parent", os.WEXITSTATUS(status), flush=True)


def shutdown(torch):
    """Daemon threads that allocate while the interpreter shuts down.

    The bits choose the line of each call, so that no stack was seen before and all of its frames are
    read: the threads spend most of their time on that.
    """
    def descend(depth, bits):
        if depth == 0:
            return torch.alloc(4096)
        if bits & 1:
            return descend(depth - 1, bits >> 1)
        return descend(depth - 1, bits >> 1)

    def forever(seed):
        dice = random.Random(seed)
        while True:
            torch.free(descend(120, dice.getrandbits(120)))

    sys.setswitchinterval(1e-6)
    for seed in range(8):
        threading.Thread(target=forever, args=[seed], daemon=True).start()
    torch.alloc(8 << 20)
    time.sleep(0.1)
    print("leaving", flush=True)


def late(torch_directory):
    """CUDA is used first, PyTorch is loaded later."""
    driver = ctypes.CDLL("libcuda.so.1")
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxSetCurrent(context)
    driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20))
    return Torch(torch_directory)


def out_of_memory(torch):
    torch.set_limit(64 << 20)
    live = [torch.alloc(6 << 20) for _ in range(9)]
    for block in live[::3]:
        torch.free(block)
    failed = torch.alloc(30 << 20)
    assert failed == 0
    os.kill(os.getpid(), 9)


def fraction(torch):
    """A limit that the program sets itself: the cache is released before the request fails."""
    total, free = ctypes.c_size_t(), ctypes.c_size_t()
    torch.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    allowed = 1 / 3
    torch.set_fraction(allowed)
    kept = torch.alloc(20 << 20)
    torch.free(torch.alloc(int(total.value * allowed) // 2))
    time.sleep(0.5)  # the card has been read
    assert torch.alloc(int(total.value * allowed)) == 0
    torch.free(kept)
    write_json("TOLD", round(total.value * allowed))


def asynchronous(torch):
    """The backend cudaMallocAsync: a leak, peaks that are reset, and a request that fails."""
    torch.use_async()
    peaks = {"allocated_peak": 0, "reserved_peak": 0}

    def note():
        truth = torch.truth()
        for name in peaks:
            peaks[name] = max(peaks[name], truth[name])
        torch.reset_peaks()

    kept = [torch.alloc(1000 * i + 1) for i in range(1, 40)]
    for size in (3 << 20, 200 << 20, 5 << 20):
        torch.free(torch.alloc(size))
        note()
    for _ in range(20):
        for block in [torch.alloc(size << 20) for size in (6, 3, 7)]:
            torch.free(block)
        kept.append(torch.alloc(4 << 20))
    assert torch.alloc(1 << 50) == 0
    note()
    write_json("TOLD", peaks)


def sleeping(torch):
    """Weights in a pool whose memory is unmapped, mapped again, and unmapped until the end."""
    torch.alloc(400 << 20)
    torch.use_pool(0, 3)
    torch.use_sleeping_memory(1)
    for _ in range(3):
        torch.alloc(300 << 20)
    torch.use_pool(0, 0)
    torch.use_sleeping_memory(0)
    times = {}
    for name, asleep in (("awake", 0), ("asleep", 1), ("woken", 0), ("end", 1)):
        torch.sleep(asleep)
        time.sleep(0.25)
        times[name] = time.time_ns()
        time.sleep(0.25)
    write_json("TOLD", times)


def phases(torch):
    optimizer_module = types.ModuleType("torch.optim.optimizer")
    hooks = []
    optimizer_module.register_optimizer_step_post_hook = hooks.append

    class Storage:
        def __init__(self, address, size):
            self.address, self.size = address, size

        def data_ptr(self):
            return self.address

        def nbytes(self):
            return self.size

    class Tensor:
        is_cuda = True
        device = types.SimpleNamespace(index=0)

        def __init__(self, size):
            self.storage, self.grad = Storage(torch.alloc(size), size), None

        def untyped_storage(self):
            return self.storage

    weight = Tensor(1 << 20)
    weight.grad = Tensor(2 << 20)
    optimizer = types.SimpleNamespace(param_groups=[{"params": [weight]}],
                                      state={weight: {"momentum": Tensor(3 << 20), "step": 1}})
    sys.modules["torch.optim.optimizer"] = optimizer_module
    import time
    for _ in range(200):  # until the hook is in place
        if hooks:
            break
        time.sleep(0.05)
    for _ in range(5):
        torch.cpu.standin_annotate(b"training step", 1)
        for hook in hooks:
            hook(optimizer, (), {})
        torch.cpu.standin_annotate(b"training step", 0)
    print("hooks", len(hooks), flush=True)


# As much of torch.nn.Module as its frames show: since torch 2.5 `self` is a cell in _call_impl.
MODULE = """
class Module:
    def __init__(self, **children):
        self.__dict__.update(_modules=children, _parameters={})

    def _wrapped_call_impl(self, *args, **kwargs):
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args, **kwargs):
        def inner():
            return self.forward(*args, **kwargs)
        return inner()

    __call__ = _wrapped_call_impl

    def _apply(self, fn):
        for module in self._modules.values():
            module._apply(fn)
        for name, parameter in self._parameters.items():
            self._parameters[name] = fn(parameter)
        return self
"""


def nn_modules(torch):
    """Modules that run forward and backward; tells the module of each block by its size."""
    space = {}
    exec(compile(MODULE, "/usr/lib/torch/nn/modules/module.py", "exec"), space)
    Module, told, nodes = space["Module"], {}, []
    sizes = iter(range(1 << 20, 1 << 40, 1 << 12))

    class Tensor:
        is_cuda, grad = True, None
        device = types.SimpleNamespace(index=0)

        def __init__(self, address, size):
            self.storage = types.SimpleNamespace(data_ptr=lambda: address, nbytes=lambda: size)

        def untyped_storage(self):
            return self.storage

    def allocate(path):
        size = next(sizes)
        told[size] = path
        return Tensor(torch.alloc(size), size)

    class Layer(Module):
        """An operation that allocates."""
        def forward(self, path):
            nodes.append((torch.cpu.standin_make_node(), path))
            allocate(path)

    class InPlace(Module):
        """One that does not."""
        def forward(self, path):
            nodes.append((torch.cpu.standin_make_node(), path))
            torch.set_history()

    class Block(Module):
        def forward(self, path):
            for name, child in list(self._modules.items()):
                child(f"{path}.{name}")
            allocate(path)

    class Sharded(Block):
        pass

    class Model(Module):
        def forward(self):
            for name, child in self._modules["layers"]._modules.items():
                child(f"layers.{name}")
            self._modules["shared"]("layers.0.first")

    class Wrapper(Module):
        def forward(self):
            next(iter(self._modules.values()))()

    class Weight(Module):
        """Has its parameter on the device from the beginning."""
        def __init__(self, path):
            super().__init__()
            allocate(path)

        def forward(self, path):
            Weight(path)  # what is made while this one runs is of this one

    class Named:
        pass

    class Made(Named, Module):
        def __init__(self, deep):
            Module.__init__(self, inner=Weight("made.inner"), deep=Block(part=deep))
            self.itself = lambda: self  # a cell
            allocate("made")

        def forward(self):
            self._modules["inner"]("made.inner")
            self._modules["deep"]("made.deep")
            allocate("made")

    def block():
        return Block(first=Layer(), act=InPlace(), second=Layer())

    model = Model(layers=Module(**{"0": block(), "1": Module(), "2": block()}))
    model._modules["layers"]._modules["1"] = Wrapper(_orig_mod=block())
    model._modules["layers"]._modules["1"].forward = lambda path: (
        model._modules["layers"]._modules["1"]._modules["_orig_mod"](path))
    model._modules["shared"] = model._modules["layers"]._modules["0"]._modules["first"]
    whole = Wrapper(module=Wrapper(_fsdp_wrapped_module=model))
    leaf = model._modules["shared"]
    leaf._parameters["weight"] = None
    whole._apply(lambda _: allocate("layers.0.first"))
    whole()
    # As fully_shard() does; modules that are added later, and one that is in no tree.
    Sharded.__name__ = "FSDPBlock"
    model._modules["layers"]._modules["2"].__class__ = Sharded
    model._modules["layers"]._modules["added"] = block()
    # Their paths are learnt from time to time, less often on a busy machine.
    for _ in range(12):
        time.sleep(0.1)
        whole()
    Layer()("Layer")
    nodes.append((torch.cpu.standin_make_node(), None))  # outside of the model
    allocate(None)
    # Backward: with and without Python on the thread.
    thread = torch.cpu.standin_thread()

    def run_backward(number, path):
        size = next(sizes)
        told[size] = path
        torch.cpu.standin_run_node(number, thread)
        torch.alloc(size)

    for number, path in nodes:
        size = next(sizes)
        told[size] = path
        torch.backward(size, number, thread)
        worker = threading.Thread(target=run_backward, args=(number, path))
        worker.start()
        worker.join()
    # The optimizer tells whose parameters, gradients and states there are.
    hooks = []
    sys.modules["torch.optim.optimizer"] = types.ModuleType("torch.optim.optimizer")
    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook = hooks.append
    weight = leaf._parameters["weight"]
    elsewhere = Layer._parameters = allocate(None)
    weight.grad = allocate(None)
    told[weight.grad.storage.nbytes()] = "layers.0.first"
    momentum = allocate(None)
    told[momentum.storage.nbytes()] = "layers.0.first"
    optimizer = types.SimpleNamespace(param_groups=[{"params": [weight, elsewhere]}],
                                      state={weight: {"momentum": momentum, "step": 1}})
    for _ in range(200):  # until the hook is in place
        if hooks:
            break
        time.sleep(0.05)
    for hook in hooks:
        hook(optimizer, (), {})
    # One whose parts allocate while they are made; they have a path when they run.
    made = Wrapper(made=Made(Weight("made.deep.part")))
    for _ in range(30):
        made()
        time.sleep(0.05)
    del made
    # Another model, perhaps at the addresses of the first.
    del model, whole, leaf, optimizer, weight
    for _ in range(3):
        other = Wrapper(other=Wrapper(module=Layer()))
        other._modules["other"].forward = lambda: other._modules["other"]._modules["module"](
            "other.module")
        for _ in range(30):
            other()
            time.sleep(0.05)
        del other
    write_json("TOLD", told)


def nvtx(torch):
    """What the NVTX header does in a program: loads the library, which fills in its functions."""
    library = ctypes.CDLL(os.environ["NVTX_INJECTION64_PATH"])
    slots = {1: (ctypes.c_void_p * 16)(), 5: (ctypes.c_void_p * 16)()}
    tables = {module: (ctypes.c_void_p * 16)(*[
        ctypes.addressof(array) + 8 * i for i in range(16)]) for module, array in slots.items()}

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
                      ctypes.POINTER(ctypes.c_uint))
    def function_table(module, out_table, out_size):
        if module not in tables:
            return 0
        out_table[0], out_size[0] = ctypes.addressof(tables[module]), 16
        return 1

    class Callbacks(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("table", ctypes.c_void_p)]

    callbacks = Callbacks(16, ctypes.cast(function_table, ctypes.c_void_p).value)

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
    def export_table(number):
        return ctypes.addressof(callbacks) if number == 1 else None

    assert library.InitializeInjectionNvtx2(export_table) == 1

    def function(module, number, result, *arguments):
        return ctypes.CFUNCTYPE(result, *arguments)(slots[module][number])

    class Attributes(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint16), ("size", ctypes.c_uint16),
                    ("numbers", ctypes.c_uint32 * 5), ("payload", ctypes.c_uint64),
                    ("message_type", ctypes.c_int32), ("message", ctypes.c_void_p)]

    push = function(1, 9, ctypes.c_int, ctypes.c_char_p)
    push_wide = function(1, 10, ctypes.c_int, ctypes.c_wchar_p)
    pop = function(1, 11, ctypes.c_int)
    start = function(1, 5, ctypes.c_uint64, ctypes.c_char_p)
    end = function(1, 7, None, ctypes.c_uint64)
    mark = function(1, 2, None, ctypes.c_char_p)
    domain = function(5, 12, ctypes.c_void_p, ctypes.c_char_p)(b"loader")
    text = function(5, 10, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(domain, b"fetch")
    domain_push = function(5, 4, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Attributes))
    domain_pop = function(5, 5, ctypes.c_int, ctypes.c_void_p)
    levels = [push(b"outer"), push_wide("inn\u00e9r")]
    registered = Attributes(3, 48, (ctypes.c_uint32 * 5)(), 0, 3, text)
    domain_push(domain, ctypes.byref(registered))
    nccl = function(5, 12, ctypes.c_void_p, ctypes.c_char_p)(b"NCCL")
    register = function(5, 10, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
    for call in (b"ncclCommInitRank", b"ncclAllReduce", b"ncclSend"):
        named = Attributes(3, 48, (ctypes.c_uint32 * 5)(), 0, 3, register(nccl, call))
        domain_push(nccl, ctypes.byref(named))
        domain_pop(nccl)
    first, second = start(b"one"), start(b"two")
    end(first)
    end(second)
    domain_pop(domain)
    levels += [pop(), pop(), pop()]
    mark(b"done")
    print("levels", levels, flush=True)


def random_step(torch, dice, live, most):
    """One allocation or free, of any kind."""
    if live and (len(live) > most or dice.random() < 0.48):
        block = live.pop(dice.randrange(len(live)))
        if dice.random() < 0.1:
            torch.record_stream(block)
        torch.free(block)
        return
    size = dice.choice([dice.randrange(1, 4096), dice.randrange(1, 1 << 20),
                        dice.randrange(1, 30 << 20)])
    live.append(torch.alloc(size, dice.randrange(3)))


def obey(torch):
    """Executes commands from stdin and prints a line for each."""
    dice = random.Random(11)
    live, threads, over, steps = [], [], threading.Event(), 0
    def run(seed):
        own = random.Random(seed)
        blocks = []
        while not over.is_set():
            random_step(torch, own, blocks, 40)
            if own.random() < 0.01:
                torch.process_events()
            if own.random() < 0.002:
                torch.empty_cache()
        live.extend(blocks)

    def quiet():
        over.set()
        while threads:
            threads.pop().join()
        over.clear()
        return torch.truth()

    for line in sys.stdin:
        verb, *numbers = line.split()
        answer = "ready"
        if verb == "fill":
            for _ in range(int(numbers[0])):
                random_step(torch, dice, live, 400)
        elif verb == "threads":
            for seed in range(int(numbers[0])):
                threads.append(threading.Thread(target=run, args=(seed,)))
                threads[-1].start()
        elif verb == "quiet":
            answer = json.dumps(quiet())
        elif verb == "empty":
            torch.empty_cache()
        elif verb == "hold":
            live.extend(torch.alloc(1 << 20) for _ in range(int(numbers[0])))
        elif verb == "spike":
            torch.free(torch.alloc(int(numbers[0]) << 20))
            torch.empty_cache()
        elif verb == "step":
            for block in [torch.alloc(1 << 20) for _ in range(int(numbers[0]))]:
                torch.free(block)
            import tidemark
            tidemark.step(steps)
            steps += 1
        elif verb == "fail":
            answer = "failed" if torch.alloc(1 << 50) == 0 else "done"
        elif verb == "received":
            answer = str(len(RECEIVED))
        print(answer, flush=True)
    quiet()


def days(torch):
    """A job that leaks slowly, of so many steps in so many seconds at least. LOG gets a line for
    each step: the time of a rest, the truth then, and the process's own memory in pages."""
    import tidemark
    steps, seconds = int(os.environ["STEPS"]), float(os.environ["SECONDS"])
    begin = time.monotonic()
    weights = [torch.alloc(20 << 20) for _ in range(4)]
    kept = []
    torch.cuda.standin_churn.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    with open(os.environ["LOG"], "w", encoding="utf-8") as log, tidemark.range("training"):
        tidemark.name(weights, "weights")
        for step in range(steps):
            torch.churn(2000, step)
            if step % (steps // 100) == 0:
                kept.append(torch.alloc(1_500_000))
            before = time.time_ns()
            truth = torch.truth()
            with open("/proc/self/statm", encoding="utf-8") as file:
                resident, shared = map(int, file.read().split()[1:3])
            print((before + time.time_ns()) // 2, truth["allocated"], truth["requested"],
                  truth["reserved"], resident - shared, file=log)
            tidemark.step(step)
            time.sleep(max(0, begin + seconds * (step + 1) / steps - time.monotonic()))


class ChangingEnvironment:
    """What another thread may see while the program calls setenv(): pointers to freed memory."""

    def __init__(self):
        # Real PyTorch has loaded the C++ library, whose constructor reads the environment. Where the
        # stand-ins are linked without it, the bridge would be the first to load it.
        ctypes.CDLL("libstdc++.so.6")
        libc = ctypes.CDLL(None)
        for i in range(100):
            libc.setenv(f"CHANGED_{i}".encode(), b"1", 1)
        self.environ = ctypes.c_void_p.in_dll(libc, "environ")
        self.entries = (ctypes.c_void_p * 2)(8, None)

    def __enter__(self):
        self.before = self.environ.value
        self.environ.value = ctypes.addressof(self.entries)

    def __exit__(self, *_):
        self.environ.value = self.before


def changing_environment(directory):
    # Prepared before, because a library that is being loaded holds up ctypes.
    changing = ChangingEnvironment()
    torch = Torch(directory)
    with changing:
        wait_for_bridge(torch)
        churn(torch)
    return torch


def wait_for_bridge(torch):
    """Waits until this process has loaded the bridge, which another thread builds."""
    rounds_after = 4  # it is attached at an allocation
    for _ in range(1200):
        with open("/proc/self/maps", encoding="utf-8") as file:
            maps = file.read()
        if any(path in maps for path in glob.glob(os.environ["WAIT_FOR"])):
            rounds_after -= 1
        if rounds_after == 0:
            break
        torch.free(torch.alloc(512))
        time.sleep(0.05)


RECEIVED = []


def main():
    name, directory = sys.argv[1:3]
    if os.environ.get("HANDLE"):  # before CUDA is used
        signal.signal(getattr(signal, f"SIG{os.environ['HANDLE']}"),
                      lambda number, _: RECEIVED.append(number))
    if name == "changing_environment":
        return write_json("TRUTH", changing_environment(directory).truth())
    torch = late(directory) if name == "late" else Torch(directory)
    if os.environ.get("WAIT_FOR"):
        wait_for_bridge(torch)
    {"churn": churn, "thrash": thrash, "lines": lines, "calls": calls,
     "workers": workers, "nodes": nodes, "forked": forked, "shutdown": shutdown,
     "late": churn, "out_of_memory": out_of_memory, "fraction": fraction,
     "asynchronous": asynchronous, "sleeping": sleeping, "phases": phases, "nvtx": nvtx,
     "nn_modules": nn_modules,
     "obey": obey, "days": days}[name](torch)
    return write_json("TRUTH", torch.truth())


if __name__ == "__main__":
    main()

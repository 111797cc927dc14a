"""A module `torch` over the stand-in's allocator, as much of it as docs/python.md uses."""
import math
import os
import pathlib
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))
from torch_program import Torch  # noqa: E402


def install(directory):
    """Makes `import torch` find it, and initialises CUDA."""
    allocator = Torch(directory)

    class Tensor:
        is_cuda = True

        def __init__(self, numbers):
            self.address = allocator.alloc(4 * numbers)

        def __del__(self):
            allocator.free(self.address)

        def untyped_storage(self):
            return types.SimpleNamespace(data_ptr=lambda: self.address)

    class Module:
        def __init__(self, inputs, outputs, device):
            assert device == "cuda"
            self.weight, self.bias = Tensor(inputs * outputs), Tensor(outputs)

        def parameters(self):
            return iter([self.weight, self.bias])

        def buffers(self):
            return iter([])

    module = types.ModuleType("torch")

    def empty(*shape, device):
        assert device == "cuda"
        return Tensor(math.prod(shape))

    module.empty = empty
    module.nn = types.SimpleNamespace(Linear=Module)
    module.allocator = allocator
    sys.modules["torch"] = module
    return module


if "STANDIN_TORCH" in os.environ:  # for programs that are not written for the stand-in
    install(os.environ["STANDIN_TORCH"])

// The functions of PyTorch's CUDABlas.cpp and CublasHandlePool.cpp that take a workspace for cuBLAS
// or cublasLt. They ask the allocator for bytes; whatever goes through EmptyTensor.cpp is a tensor.
#pragma once

#include <string_view>

namespace tidemark {

inline bool takes_workspace(std::string_view function) {
  return function.find("cuda::setWorkspaceForHandle") != function.npos ||
         function.find("cuda::getNewWorkspace") != function.npos ||
         function.find("BlasLtWorkspace") != function.npos;
}

inline bool makes_tensor(std::string_view function) {
  return function.find("at::detail::empty") != function.npos ||
         function.find("at::detail::_empty") != function.npos;
}

}  // namespace tidemark

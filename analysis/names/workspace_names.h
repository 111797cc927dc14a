// The functions of PyTorch's CUDABlas.cpp and CublasHandlePool.cpp that take a workspace for cuBLAS
// or cublasLt.
#pragma once

#include <string_view>

namespace tidemark {

inline bool takes_workspace(std::string_view function) {
  return function.find("cuda::setWorkspaceForHandle") != function.npos ||
         function.find("cuda::getNewWorkspace") != function.npos ||
         function.find("BlasLtWorkspace") != function.npos;
}

}  // namespace tidemark

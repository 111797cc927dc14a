// Names of kernels, short enough for a row, with the template arguments that tell instances apart.
#pragma once

#include <string>
#include <string_view>

namespace tidemark::view {

// Without result, parameters and the namespaces of template arguments:
// "at::native::vectorized_elementwise_kernel<4, FillFunctor<float>, array<char*, 1>>". `name` may
// be mangled.
std::string kernel_name(std::string_view name);

}  // namespace tidemark::view

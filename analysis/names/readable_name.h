// Names of functions as a person would say them.
#pragma once

#include <string>
#include <string_view>

namespace tidemark {

// The function without its result, its parameters, nameless namespaces and long template arguments:
// "_ZN2at6detail13empty_genericE…" becomes "at::detail::empty_generic". What is not mangled stays.
std::string readable_name(const std::string& mangled);

// The second half of it, for names that are C++ already.
std::string short_function(std::string_view demangled);

}  // namespace tidemark

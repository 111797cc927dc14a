// Short, readable function names.
#pragma once

#include <string>
#include <string_view>

namespace tidemark {

// The function without its result, its parameters, nameless namespaces and long template arguments:
// "_ZN2at6detail13empty_genericE…" becomes "at::detail::empty_generic". Other names stay as they
// are.
std::string readable_name(const std::string& mangled);

// The same for names that are already demangled.
std::string short_function(std::string_view demangled);

}  // namespace tidemark

#include "analysis/names/stack_lines.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "analysis/names/workspace_names.h"

namespace tidemark {

namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_library(std::string_view frame) {
  return contains(frame, "site-packages/") || contains(frame, "dist-packages/") ||
         contains(frame, "lib/python3") || !contains(frame, ".py");
}

// Frames of the allocator and of the recorder: every stack begins with them.
bool is_plumbing(std::string_view frame) {
  for (const std::string_view part :
       {"libcudart.so", "libcuda.so", "libcupti.so", "torch::unwind::", "torch::CapturedTraceback",
        "::gather", "CUDACachingAllocator", "c10::StorageImpl", "at::detail::empty",
        "at::native::empty", "c10::impl::wrap_kernel", "wrapper_CUDA__empty",
        "at::TensorBase at::", "empty_strided", "empty_memory_format"}) {
    if (contains(frame, part)) return true;
  }
  return false;
}

// What stands between two texts; empty if either is missing.
std::string_view between(std::string_view text, std::string_view before, std::string_view after) {
  const size_t begin = text.find(before);
  if (begin == std::string_view::npos) return "";
  text.remove_prefix(begin + before.size());
  const size_t end = text.find(after);
  return end == std::string_view::npos ? "" : text.substr(0, end);
}

// "AddmmBackward0", from the frame in which this node of autograd's graph is applied.
std::string_view backward_node(std::string_view frame) {
  return between(frame, "torch::autograd::generated::", "::apply(");
}

// The operation that the program or a node of the backward pass called, "aten::relu": PyTorch calls
// others to carry it out, whose frames are further inside. Empty if no frame names one.
std::string operation_of(const std::vector<std::string>& frames) {
  std::string operation;
  for (const std::string& frame : frames) {
    if (is_python_line(frame) || !backward_node(frame).empty()) break;
    if (takes_workspace(frame)) return "cuBLAS's workspace";
    const std::string_view name = between(frame, "at::_ops::", "::");
    if (!name.empty()) operation = "aten::" + std::string(name);
  }
  return operation;
}

}  // namespace

bool is_python_line(std::string_view frame) {
  return contains(frame, ".py:");
}

bool is_users_code(std::string_view frame) {
  return !is_library(frame);
}

std::string inner_line_of(const std::vector<std::string>& frames) {
  const std::string* const shown = innermost_worth_showing(frames);
  if (shown == nullptr) return "";
  const std::string operation = operation_of(frames);
  return operation.empty() || contains(*shown, ".py:") ? *shown : operation;
}

std::vector<std::string> lines_to_show(const std::vector<std::string>& frames) {
  std::vector<std::string> lines;
  std::copy_if(frames.begin(), frames.end(), std::back_inserter(lines), is_python_line);
  if (lines.empty()) {
    lines.assign(std::find_if_not(frames.begin(), frames.end(), is_plumbing), frames.end());
    return lines.empty() ? frames : lines;
  }
  if (std::string inner = inner_line_of(frames); inner != lines.front()) {
    lines.insert(lines.begin(), std::move(inner));
  }
  return lines;
}

const std::string* innermost_worth_showing(const std::vector<std::string>& frames) {
  const auto it = std::find_if_not(frames.begin(), frames.end(), is_plumbing);
  return it != frames.end() ? &*it : frames.empty() ? nullptr : &frames.front();
}

std::string headline_of(const std::vector<std::string>& frames) {
  if (frames.empty()) return "(no Python stack)";
  const auto own = std::find_if(frames.begin(), frames.end(),
                                [](const std::string& f) { return !is_library(f); });
  if (own != frames.end()) return *own;
  for (const std::string& frame : frames) {
    if (const std::string_view node = backward_node(frame); !node.empty()) return std::string(node);
  }
  const auto has = [&](std::string_view part) {
    return std::find_if(frames.begin(), frames.end(),
                        [&](const std::string& f) { return contains(f, part); });
  };
  if (const auto backward = has("Backward"); backward != frames.end()) return *backward;
  if (has("torch::autograd::Engine::") != frames.end()) return "backward pass";
  return inner_line_of(frames);
}

std::string place_of(const std::vector<std::string>& frames) {
  const std::string headline = headline_of(frames);
  const size_t space = headline.rfind(' ');
  if (!contains(headline, ".py:") || space == std::string::npos) return headline;
  const size_t slash = headline.rfind('/');
  return headline.substr((slash == std::string::npos ? space : std::max(slash, space)) + 1);
}

std::string caller_unlike(const std::vector<std::string>& frames,
                          const std::vector<std::string>& others) {
  const auto own = std::find_if_not(frames.begin(), frames.end(), is_library);
  const auto its = std::find_if_not(others.begin(), others.end(), is_library);
  const auto unlike = std::mismatch(own, frames.end(), its, others.end()).first;
  const auto caller = std::find_if_not(unlike, frames.end(), is_library);
  if (caller != frames.end()) return *caller;
  if (own == frames.end() || unlike != frames.end()) return "";
  // The same line of the user's may come to two lines of one function of a library.
  const auto [inner, its_inner] =
      std::mismatch(frames.rbegin(), frames.rend(), others.rbegin(), others.rend());
  if (inner == frames.rend() || its_inner == others.rend()) return "";
  const auto function = [](std::string_view frame) { return frame.substr(0, frame.rfind(':')); };
  return function(*inner) == function(*its_inner) ? *inner : "";
}

std::string function_called_at(const std::vector<std::string>& frames) {
  const auto own = std::find_if_not(frames.begin(), frames.end(), is_library);
  if (own == frames.end()) return "";
  const auto called =
      std::find_if(std::make_reverse_iterator(own), frames.rend(),
                   [](const std::string& f) { return contains(f, ".py:") && !f.starts_with('_'); });
  return called == frames.rend() ? operation_of(frames) : called->substr(0, called->find(' '));
}

std::vector<std::string> callers_of(const std::vector<std::string>& frames, size_t most) {
  std::vector<std::string> callers;
  auto frame = std::find_if_not(frames.begin(), frames.end(), is_library);
  if (frame == frames.end()) return callers;
  const auto name_of = [](std::string_view text) { return text.substr(0, text.find(' ')); };
  const auto is_inner = [&](auto from) {
    for (; from != frames.end(); ++from) {
      if (!is_library(*from)) return name_of(*from).ends_with("forward");
    }
    return false;
  };
  while (++frame != frames.end() && callers.size() < most) {
    const std::string_view text = *frame;
    const std::string_view function = name_of(text);
    if (is_library(text) || function == "<module>") continue;
    if (function.ends_with("forward") && is_inner(std::next(frame))) continue;
    const size_t slash = text.rfind('/');
    const std::string_view place =
        slash == text.npos ? text.substr(function.size() + 1) : text.substr(slash + 1);
    callers.push_back(std::string(function) + " " + std::string(place));
  }
  return callers;
}

}  // namespace tidemark

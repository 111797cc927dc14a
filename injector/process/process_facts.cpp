#include "injector/process/process_facts.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>

#include "proto/launcher_variables.h"

namespace tidemark::injector {
namespace {

const char* text_of(EnvironmentLookup lookup, const char* name) {
  const char* value = name != nullptr ? lookup(name) : nullptr;
  return value != nullptr && *value != '\0' ? value : nullptr;
}

bool number_of(EnvironmentLookup lookup, const char* name, int64_t& out) {
  const char* text = text_of(lookup, name);
  if (text == nullptr) return false;
  const char* end = text + std::strlen(text);
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < 0) return false;
  out = value;
  return true;
}

bool contains_word(std::string_view text, std::string_view upper_word) {
  const auto same = [](char a, char b) { return std::toupper(static_cast<unsigned char>(a)) == b; };
  return std::search(text.begin(), text.end(), upper_word.begin(), upper_word.end(), same) !=
         text.end();
}

bool sounds_secret(std::string_view name) {
  constexpr std::string_view kWords[] = {"TOKEN",  "SECRET",     "PASSW",   "CREDENTIAL",
                                         "APIKEY", "API_KEY",    "API-KEY", "ACCESS_KEY",
                                         "AUTH",   "PRIVATE_KEY"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view word) { return contains_word(name, word); });
}

constexpr std::string_view kRecordedNames[] = {
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "ROLE_RANK",
    "OMP_NUM_THREADS",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_NNODES",
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "TORCHELASTIC_RUN_ID",
    "OMPI_COMM_WORLD_SIZE",
    "NVIDIA_VISIBLE_DEVICES",
};

size_t read_command_line(char* buffer, size_t capacity) {
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  size_t size = 0;
  while (size < capacity) {
    const ssize_t got = read(fd, buffer + size, capacity - size);
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  close(fd);
  return size;
}

// Appends as much as fits.
class TextBuffer {
 public:
  TextBuffer(char* buffer, size_t capacity) : buffer_(buffer), capacity_(capacity) {}
  void add(std::string_view text) {
    const size_t bytes = std::min(text.size(), capacity_ - size_);
    std::memcpy(buffer_ + size_, text.data(), bytes);
    size_ += bytes;
  }
  std::string_view text() const { return {buffer_, size_}; }

 private:
  char* buffer_;
  size_t capacity_;
  size_t size_ = 0;
};

}  // namespace

JobPlace find_job_place(EnvironmentLookup lookup) noexcept {
  for (const LauncherVariables& launcher : kLaunchers) {
    JobPlace place;
    if (!number_of(lookup, launcher.rank, place.rank)) continue;
    if (launcher.required != nullptr && text_of(lookup, launcher.required) == nullptr) continue;
    int64_t size = 0;
    // Slurm gives the size of a step in one of two variables; PMIx alone does not give it at all.
    if (number_of(lookup, launcher.size, size) || number_of(lookup, "SLURM_NTASKS", size)) {
      place.world_size = static_cast<uint64_t>(size);
    }
    number_of(lookup, launcher.local_rank, place.local_rank);
    return place;
  }
  return {};
}

std::string_view find_job_id(EnvironmentLookup lookup, char* buffer, size_t capacity) noexcept {
  TextBuffer text(buffer, capacity);
  const char* elastic = text_of(lookup, "TORCHELASTIC_RUN_ID");
  // torchrun without --rdzv-id calls every run "none".
  if (elastic != nullptr && std::strcmp(elastic, "none") != 0) {
    text.add(elastic);
    return text.text();
  }
  if (const char* slurm = text_of(lookup, "SLURM_JOB_ID")) {
    text.add("slurm-");
    text.add(slurm);
    if (const char* step = text_of(lookup, "SLURM_STEP_ID")) {
      text.add(".");
      text.add(step);
    }
    return text.text();
  }
  constexpr const char* kOthers[] = {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "TIDEMARK_JOB"};
  for (const char* name : kOthers) {
    if (const char* value = text_of(lookup, name)) {
      text.add(value);
      return text.text();
    }
  }
  return {};
}

bool is_recorded_setting(std::string_view name, std::string_view value) noexcept {
  if (sounds_secret(name) || value.find("://") != std::string_view::npos) return false;
  if (name.starts_with("PYTORCH_") && name.ends_with("ALLOC_CONF")) return true;
  if (name.starts_with("NCCL_") || name.starts_with("TORCH_NCCL_")) return true;
  if (name.starts_with("TIDEMARK_")) return true;
  // CUDA_HOME and similar paths say nothing about memory, but may contain user names.
  if (name.starts_with("CUDA_")) return value.find('/') == std::string_view::npos;
  return std::find(std::begin(kRecordedNames), std::end(kRecordedNames), name) !=
         std::end(kRecordedNames);
}

std::string_view readable_command(std::string_view arguments, char* buffer,
                                  size_t capacity) noexcept {
  TextBuffer text(buffer, capacity);
  bool hide_next = false;
  bool first = true;
  while (!arguments.empty()) {
    const size_t end = std::min(arguments.find('\0'), arguments.size());
    const std::string_view word = arguments.substr(0, end);
    arguments.remove_prefix(std::min(end + 1, arguments.size()));
    if (!first) text.add(" ");
    first = false;
    const bool is_option = word.starts_with('-');
    if (hide_next && !is_option) {
      text.add("***");
      hide_next = false;
      continue;
    }
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const bool secret = sounds_secret(name);
    if (secret && equals != std::string_view::npos) {
      text.add(name);
      text.add("=***");
    } else {
      text.add(word);
    }
    hide_next = secret && is_option && equals == std::string_view::npos;
  }
  return text.text();
}

std::string_view own_command(char* buffer, size_t capacity) noexcept {
  char raw[kLongestCommand];
  return readable_command({raw, read_command_line(raw, sizeof raw)}, buffer, capacity);
}

}  // namespace tidemark::injector

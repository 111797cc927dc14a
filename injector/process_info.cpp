#include "injector/process_info.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "injector/recorder.h"
#include "proto/base/version.h"

namespace tidemark::injector {
namespace {

// As recorded at the start, when the driver must not be asked yet. Written before the task thread
// has its first task.
Process g_process{};

struct RankVariables {
  const char* rank;
  const char* local_rank;
  const char* size;
  const char* required;  // must be set too, nullptr: nothing more
};

constexpr RankVariables kLaunchers[] = {
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE", nullptr},
    {"MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_LOCAL_RANK", "MVP_COMM_WORLD_SIZE", nullptr},
    {"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "PMI_SIZE"},
    // A batch script is no step: it has SLURM_PROCID=0 whatever the number of tasks.
    {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"},
    {"PMIX_RANK", "PMIX_LOCAL_RANK", "PMIX_SIZE", "PMIX_NAMESPACE"},
};

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

std::string_view host_name(char (&buffer)[256]) {
  if (gethostname(buffer, sizeof buffer) != 0) return {};
  buffer[sizeof buffer - 1] = '\0';
  return buffer;
}

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

uint32_t version_number() {
  uint32_t parts[3] = {};
  const char* at = kVersion.data();
  const char* end = at + kVersion.size();
  for (uint32_t& part : parts) {
    const auto [stop, error] = std::from_chars(at, end, part);
    if (error != std::errc()) break;
    at = stop != end ? stop + 1 : stop;
  }
  return parts[0] * 10000 + parts[1] * 100 + parts[2];
}

void record_setting(std::string_view key, std::string_view value, SettingScope scope) {
  constexpr size_t kLongest = 1024;
  Setting setting{};
  setting.key = recorder().intern_string(key);
  setting.value = recorder().intern_string(value.substr(0, kLongest));
  setting.scope = scope;
  recorder().record(setting);
}

void record_variable(const char* entry, void*) {
  const std::string_view text = entry;
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return;
  const std::string_view name = text.substr(0, equals);
  const std::string_view value = text.substr(equals + 1);
  if (is_recorded_setting(name, value)) record_setting(name, value, SettingScope::kEnvironment);
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
  for (const RankVariables& launcher : kLaunchers) {
    JobPlace place;
    if (!number_of(lookup, launcher.rank, place.rank)) continue;
    if (launcher.required != nullptr && text_of(lookup, launcher.required) == nullptr) continue;
    int64_t size = 0;
    // Slurm names the size of a step in one of two ways; PMIx alone does not name it at all.
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
  // CUDA_HOME and its like say nothing about memory, and paths say something about people.
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

namespace {
constexpr size_t kLongestCommand = 4096;
}

std::string_view own_command(char* buffer, size_t capacity) noexcept {
  char raw[kLongestCommand];
  return readable_command({raw, read_command_line(raw, sizeof raw)}, buffer, capacity);
}

void record_process(const Options& options, int64_t start_ns) noexcept {
  Recorder& out = recorder();
  const JobPlace place = find_job_place(process_environment);
  char command[kLongestCommand];
  char host[256];
  char job[256];
  Process process{};
  process.start_ns = start_ns;
  process.pid = static_cast<uint64_t>(getpid());
  process.parent_pid = static_cast<uint64_t>(getppid());
  process.rank = place.rank;
  process.local_rank = place.local_rank;
  process.world_size = place.world_size;
  process.host = out.intern_string(host_name(host));
  process.command = out.intern_string(own_command(command, sizeof command));
  process.job = out.intern_string(find_job_id(process_environment, job, sizeof job));
  process.tool_version = version_number();
  process.source = Source::kCapture;
  out.record(process);
  g_process = process;
  record_tool_setting("version", kVersion);
  record_tool_setting("stacks", stack_mode_name(options.stacks));
  each_variable(record_variable, nullptr);
}

void record_driver_version(uint32_t version) noexcept {
  g_process.driver_version = version;
  recorder().record(g_process);
}

void record_tool_setting(std::string_view key, std::string_view value) noexcept {
  record_setting(key, value, SettingScope::kTool);
}

}  // namespace tidemark::injector

#include "collector/launch/process_environment.h"

#include <charconv>
#include <cstdlib>
#include <fstream>

#include "proto/launcher_variables.h"

extern char** environ;

namespace tidemark {

bridge::Environment own_environment() {
  return {[](const char* name) -> const char* { return std::getenv(name); },
          [](void (*visit)(const char* entry, void* context), void* context) {
            for (char** entry = environ; *entry != nullptr; ++entry) visit(*entry, context);
          }};
}

ProcessEnvironment::ProcessEnvironment(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/environ");
  for (std::string entry; std::getline(in, entry, '\0');) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) values_[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
}

const std::string& ProcessEnvironment::get(const std::string& name) const {
  static const std::string kNone;
  const auto found = values_.find(name);
  return found != values_.end() ? found->second : kNone;
}

int64_t ProcessEnvironment::rank() const {
  for (const LauncherVariables& launcher : kLaunchers) {
    const std::string& text = get(launcher.rank);
    int64_t rank = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    const bool complete = launcher.required == nullptr || !get(launcher.required).empty();
    if (whole && rank >= 0 && complete) return rank;
  }
  return -1;
}

std::string ProcessEnvironment::job() const {
  const std::string& elastic = get("TORCHELASTIC_RUN_ID");
  if (!elastic.empty() && elastic != "none") return elastic;
  if (const std::string& slurm = get("SLURM_JOB_ID"); !slurm.empty()) {
    const std::string& step = get("SLURM_STEP_ID");
    return "slurm-" + slurm + (step.empty() ? "" : "." + step);
  }
  for (const char* name : {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "TIDEMARK_JOB"}) {
    if (!get(name).empty()) return get(name);
  }
  return "";
}

}  // namespace tidemark

#include "collector/attach/inject/target.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "collector/attach/inject/arch.h"
#include "proto/base/descriptor.h"
#include "proto/base/file_io.h"

namespace tidemark::inject {

namespace {

std::string user_name(uint32_t uid) {
  const passwd* const entry = ::getpwuid(uid);
  return entry != nullptr ? entry->pw_name : std::to_string(uid);
}

int yama_scope() {
  std::ifstream in("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  return in >> scope ? scope : 0;
}

// The /proc files of a process that is not dumpable belong to root.
bool is_dumpable(pid_t pid, const ProcessStatus& status) {
  struct stat info {};
  const std::string path = fmt::format("/proc/{}/maps", pid);
  return ::stat(path.c_str(), &info) != 0 || info.st_uid == status.uids[1] || info.st_uid != 0;
}

}  // namespace

std::string process_label(pid_t pid, const ProcessStatus& status) {
  return fmt::format("process {} ({})", pid, status.name);
}

Status check_machine(pid_t pid, const std::string& program) {
  const Descriptor file(::open(program.c_str(), O_RDONLY | O_CLOEXEC));
  Elf64_Ehdr header{};
  if (file.get() < 0 || !read_at(file.get(), 0, &header, sizeof header)) {
    return {};  // not readable: ptrace will fail with the reason
  }
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return {};
  if (header.e_ident[EI_CLASS] != ELFCLASS64) {
    return Error{fmt::format(
        "process {} is a 32-bit program; tidemark attaches to 64-bit programs only", pid)};
  }
  if (header.e_machine != own_machine()) {
    return Error{fmt::format("process {} is a program for another CPU architecture", pid)};
  }
  return {};
}

Error refusal(const RefusalFacts& facts, int system_error) {
  const std::string& who = facts.who;
  if (!facts.tracer.empty()) {
    return Error{
        fmt::format("{} is already traced by {}: detach that tracer first", who, facts.tracer)};
  }
  const bool root = facts.own_user == 0;
  if (!root && std::any_of(facts.users.begin(), facts.users.end(),
                           [&](uint32_t user) { return user != facts.own_user; })) {
    return Error{fmt::format("{} belongs to user {}: run tidemark as that user, or with sudo", who,
                             user_name(facts.users[0]))};
  }
  if (!root && !facts.dumpable) {
    return Error{fmt::format("{} is not dumpable, so only root can attach to it: use sudo", who)};
  }
  if (!root && facts.yama_scope == 1) {
    return Error{
        fmt::format("{}: only its parent may attach to a process on this system (Yama): use sudo, "
                    "or allow it with: echo 0 | sudo tee /proc/sys/kernel/yama/ptrace_scope",
                    who)};
  }
  if (!root && facts.yama_scope == 2) {
    return Error{fmt::format(
        "{}: only administrators may attach to a process on this system (Yama): use sudo", who)};
  }
  if (facts.yama_scope == 3) {
    return Error{
        fmt::format("{}: this system allows no attaching until the next boot (Yama): start the job "
                    "with tidemark run --arm",
                    who)};
  }
  return Error{
      fmt::format("{}: the kernel does not allow attaching ({}): start the container with "
                  "--cap-add=SYS_PTRACE, or the job with tidemark run --arm",
                  who, std::strerror(system_error))};
}

Error explain_refusal(pid_t pid, int system_error) {
  const auto status = read_status(pid);
  if (!status || status->state == 'Z' || status->state == 'X') {
    return Error{fmt::format("process {} has ended", pid)};
  }
  RefusalFacts facts;
  facts.who = process_label(pid, *status);
  if (status->tracer != 0) {
    const auto tracer = read_status(status->tracer);
    facts.tracer = process_label(status->tracer, tracer.value_or(ProcessStatus()));
  }
  facts.own_user = ::geteuid();
  facts.users = status->uids;
  facts.dumpable = is_dumpable(pid, *status);
  facts.yama_scope = yama_scope();
  return refusal(facts, system_error);
}

Status check_visible(pid_t pid, const std::string& library) {
  const std::string seen = fmt::format("/proc/{}/root{}", pid, library);
  struct stat outside {};
  struct stat inside {};
  if (::stat(seen.c_str(), &inside) != 0) {
    if (errno == EACCES || errno == EPERM) return explain_refusal(pid, errno);
    return Error{
        fmt::format("process {} does not see {} (a container): run cp {} /proc/{}/root/tmp/ and "
                    "pass --library /tmp/{}",
                    pid, library, library, pid, library.substr(library.rfind('/') + 1))};
  }
  if (::stat(library.c_str(), &outside) == 0 &&
      (outside.st_size != inside.st_size || outside.st_mtime != inside.st_mtime) &&
      (outside.st_dev != inside.st_dev || outside.st_ino != inside.st_ino)) {
    return Error{fmt::format(
        "process {} sees a different file at {} (a container): copy the library into it "
        "and pass its path with --library",
        pid, library)};
  }
  return {};
}

Result<Target> examine_target(pid_t pid) {
  Target target;
  target.pid = pid;
  const auto status = read_status(pid);
  if (!status) return Error{fmt::format("there is no process {}", pid)};
  target.status = *status;
  const std::string who = process_label(pid, *status);
  if (status->state == 'Z' || status->state == 'X') {
    return Error{fmt::format("{} has ended", who)};
  }
  if (status->kernel_thread) return Error{fmt::format("{} is a kernel thread", who)};
  if (status->tracer != 0) return explain_refusal(pid, EPERM);
  if (status->state == 'T' || status->state == 't') {
    return Error{fmt::format("{} is stopped: continue it with: kill -CONT {}", who, pid)};
  }
  if (status->seccomp == 1) {
    return Error{fmt::format("{} allows only four system calls (strict seccomp mode)", who)};
  }
  if (Status machine = check_machine(pid, fmt::format("/proc/{}/exe", pid)); !machine) {
    return machine.error();
  }
  Result<std::vector<MappedFile>> files = read_maps(pid);
  if (!files || files->empty()) return explain_refusal(pid, EACCES);
  target.files = std::move(*files);
  switch (find_c_library(target.files)) {
    case CLibrary::kGlibc:
      break;
    case CLibrary::kMusl:
      return Error{fmt::format("{} uses musl as its C library; libtidemark.so needs glibc", who)};
    case CLibrary::kNone:
      return Error{fmt::format("{} is statically linked: no library can be loaded into it", who)};
  }
  return target;
}

}  // namespace tidemark::inject

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
    return Error{
        fmt::format("process {} is a 32-bit program: only 64-bit ones can be entered", pid)};
  }
  if (header.e_machine != own_machine()) {
    return Error{fmt::format("process {} is a program for another machine type", pid)};
  }
  return {};
}

Error refusal(const RefusalFacts& facts, int system_error) {
  const std::string& who = facts.who;
  if (!facts.tracer.empty()) {
    return Error{fmt::format("{} is traced already by {}; one tracer at a time: detach that first",
                             who, facts.tracer)};
  }
  const bool root = facts.own_user == 0;
  if (!root && std::any_of(facts.users.begin(), facts.users.end(),
                           [&](uint32_t user) { return user != facts.own_user; })) {
    return Error{fmt::format("{} belongs to user {}: run tidemark as that user, or with sudo", who,
                             user_name(facts.users[0]))};
  }
  if (!root && !facts.dumpable) {
    return Error{fmt::format("{} is not dumpable, so only root may enter it: use sudo", who)};
  }
  if (!root && facts.yama_scope == 1) {
    return Error{
        fmt::format("{}: this system lets only parents enter a process (Yama): allow it "
                    "with: echo 0 | sudo tee /proc/sys/kernel/yama/ptrace_scope, or use "
                    "sudo",
                    who)};
  }
  if (!root && facts.yama_scope == 2) {
    return Error{
        fmt::format("{}: this system lets only administrators enter a process (Yama): use "
                    "sudo",
                    who)};
  }
  if (facts.yama_scope == 3) {
    return Error{
        fmt::format("{}: this system lets nobody enter a process (Yama, until the next "
                    "boot): start the job with tidemark run --arm",
                    who)};
  }
  return Error{
      fmt::format("{}: the kernel forbids it ({}): a container needs --cap-add=SYS_PTRACE; "
                  "or start the job with tidemark run --arm",
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
        fmt::format("process {} does not see {} (a container): cp {} /proc/{}/root/tmp/ and "
                    "give --library /tmp/{}",
                    pid, library, library, pid, library.substr(library.rfind('/') + 1))};
  }
  if (::stat(library.c_str(), &outside) == 0 &&
      (outside.st_size != inside.st_size || outside.st_mtime != inside.st_mtime) &&
      (outside.st_dev != inside.st_dev || outside.st_ino != inside.st_ino)) {
    return Error{
        fmt::format("process {} sees another file as {} (a container): copy the library "
                    "there and give its path with --library",
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
  if (status->kernel_thread) return Error{fmt::format("{} is a thread of the kernel", who)};
  if (status->tracer != 0) return explain_refusal(pid, EPERM);
  if (status->state == 'T' || status->state == 't') {
    return Error{fmt::format("{} is stopped: let it go on with: kill -CONT {}", who, pid)};
  }
  if (status->seccomp == 1) {
    return Error{fmt::format("{} has forbidden itself all but four system calls (seccomp)", who)};
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
      return Error{
          fmt::format("{} uses musl as its C library; the tidemark library needs glibc", who)};
    case CLibrary::kNone:
      return Error{fmt::format("{} is linked statically: nothing can be loaded into it", who)};
  }
  return target;
}

}  // namespace tidemark::inject

// Stand-in for libtidemark.so in tests of the commands that control running processes: answers on
// the control socket, logs requests in $FAKE_GUEST_LOG, and reports $FAKE_GUEST_TRACE as its trace.
// It records nothing.
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "proto/control.h"

namespace {

namespace control = tidemark::control;

std::string g_trace;
bool g_recording = false;

void begin_trace(std::string_view line) {
  char out[4096];
  if (!control::find_value(line, "out", out, sizeof out)) return;
  g_trace = std::string(out) + "/pid" + std::to_string(getpid()) + ".tmk";
  std::filesystem::copy_file(std::getenv("FAKE_GUEST_TRACE"), g_trace);
}

control::Line answer(std::string_view line) {
  const std::string_view verb = control::first_word(line);
  control::Line reply(control::kOk);
  if (verb == control::kStatus) {
    reply.add("v", control::kVersion).add("rank", 3).add("job", "a job");
    reply.add("state", g_recording ? control::kRecording : control::kArmed).add("trace", g_trace);
    return reply;
  }
  if (verb == control::kLive) {
    return reply.add("devices", 1)
        .add("d0", 0)
        .add("d0_total", 1000 << 20)
        .add("d0_used", 600 << 20)
        .add("d0_process", 500 << 20)
        .add("d0_allocated", 250 << 20)
        .add("d0_reserved", 400 << 20);
  }
  if (verb == control::kStart && g_recording) {
    return control::Line(control::kError).text("is recorded already");
  }
  if (verb == control::kStart || verb == control::kSnapshot) begin_trace(line);
  g_recording = verb == control::kStart;
  return reply.add("trace", g_trace).add("rows", 12).add("dropped", 0);
}

void note(std::string_view line) {
  std::FILE* const log = std::fopen(std::getenv("FAKE_GUEST_LOG"), "a");
  std::fprintf(log, "%.*s\n", static_cast<int>(line.size()), line.data());
  std::fclose(log);
}

void serve(int connection) {
  std::string unread;
  char piece[4096];
  ssize_t size = 0;
  while ((size = read(connection, piece, sizeof piece)) > 0) {
    unread.append(piece, static_cast<size_t>(size));
    for (size_t end = 0; (end = unread.find('\n')) != std::string::npos;) {
      const std::string line = unread.substr(0, end);
      unread.erase(0, end + 1);
      note(line);
      control::Line reply = answer(line);
      const std::string_view bytes = reply.finish();
      if (write(connection, bytes.data(), bytes.size()) < 0) return;
    }
  }
}

void* listen_for_ever(void*) {
  char path[4096];
  char name[64];
  sockaddr_un address;
  socklen_t size = 0;
  control::place_path(
      control::Place::kVariable, [](const char* n) { return (const char*)getenv(n); }, getuid(),
      path, sizeof path);
  const int directory = control::open_directory(path, true, getuid());
  control::socket_name(getpid(), name, sizeof name);
  control::socket_address(directory, path, name, address, size);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0) return nullptr;
  listen(listener, 8);
  for (int connection = 0; (connection = accept(listener, nullptr, nullptr)) >= 0;) {
    serve(connection);
    close(connection);
  }
  return nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int tidemark_arm() {
  static std::atomic_flag armed;
  pthread_t thread;
  if (!armed.test_and_set()) pthread_create(&thread, nullptr, listen_for_ever, nullptr);
  return 1;
}

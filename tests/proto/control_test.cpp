// The control protocol between a recording process and its clients: lines, places, sockets.
#include "proto/control.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

namespace tidemark::control {
namespace {

std::map<std::string, std::string> g_variables;
const char* lookup(const char* name) {
  const auto found = g_variables.find(name);
  return found != g_variables.end() ? found->second.c_str() : nullptr;
}

std::string path_of(Place place) {
  char path[256];
  return place_path(place, lookup, 1234, path, sizeof path) ? path : "";
}

struct Scratch {
  Scratch() {
    char name[] = "/tmp/tidemark-test-XXXXXX";
    path = mkdtemp(name);
  }
  ~Scratch() { std::filesystem::remove_all(path); }
  std::string path;
};

TEST(Control, EveryByteSurvivesALine) {
  std::string all;
  for (int i = 1; i < 256; ++i) all.push_back(static_cast<char>(i));
  Line line(kStart);
  line.add("out", all).add("for_ms", 12345).add("empty", "");
  std::string_view text = line.finish();
  ASSERT_TRUE(line.complete());
  ASSERT_EQ(text.back(), '\n');
  text.remove_suffix(1);
  EXPECT_EQ(text.find_first_of("\n\r\t"), std::string_view::npos);

  char value[1024];
  ASSERT_TRUE(find_value(text, "out", value, sizeof value));
  EXPECT_EQ(value, all);
  ASSERT_TRUE(find_value(text, "empty", value, sizeof value));
  EXPECT_STREQ(value, "");
  uint64_t number = 0;
  ASSERT_TRUE(find_number(text, "for_ms", number));
  EXPECT_EQ(number, 12345u);
  EXPECT_EQ(first_word(text), kStart);
  EXPECT_FALSE(find_value(text, "ou", value, sizeof value));
  EXPECT_FALSE(find_number(text, "out", number));
  char small[8];
  EXPECT_FALSE(find_value(text, "out", small, sizeof small));
}

TEST(Control, ALongLineLosesWholeKeys) {
  Line line(kOk);
  line.add("a", std::string(kMaxLineBytes, 'x')).add("b", 7);
  EXPECT_FALSE(line.complete());
  EXPECT_EQ(line.finish(), "ok b=7\n");
}

TEST(Control, AnErrorIsOneLine) {
  Line line(kError);
  line.text("no room\nleft");
  EXPECT_EQ(line.finish(), "error no room left\n");
  EXPECT_EQ(rest_of("error no room left"), "no room left");
}

TEST(Control, BrokenEscapesStandForThemselves) {
  char out[16];
  EXPECT_EQ(unescape("a%zz%4", out, sizeof out), 6u);
  EXPECT_STREQ(out, "a%zz%4");
  EXPECT_EQ(unescape("%41%2", out, sizeof out), 3u);
  EXPECT_STREQ(out, "A%2");
}

TEST(Control, PlacesFollowTheVariables) {
  g_variables.clear();
  EXPECT_EQ(path_of(Place::kVariable), "");
  EXPECT_EQ(path_of(Place::kRuntime), "");
  EXPECT_EQ(path_of(Place::kTemporary), "/tmp/tidemark-1234");
  g_variables = {{"TIDEMARK_CONTROL_DIR", "/a/b//"}, {"XDG_RUNTIME_DIR", "/run/user/1234/"}};
  EXPECT_EQ(path_of(Place::kVariable), "/a/b");
  EXPECT_EQ(path_of(Place::kRuntime), "/run/user/1234/tidemark");
}

TEST(Control, NamesOfSockets) {
  char name[32];
  ASSERT_TRUE(socket_name(4711, name, sizeof name));
  EXPECT_STREQ(name, "4711.sock");
  EXPECT_EQ(pid_of_socket("4711.sock"), 4711);
  for (const char* other : {"", ".sock", "0.sock", "-1.sock", "12", "12.sockx", "012.sock",
                            "99999999999.sock", "1 .sock"}) {
    EXPECT_EQ(pid_of_socket(other), 0) << other;
  }
}

TEST(Control, TrustsOnlyADirectoryOfItsUser) {
  const Scratch scratch;
  const std::string made = scratch.path + "/control";
  const int fd = open_directory(made.c_str(), true, getuid());
  ASSERT_GE(fd, 0);
  close(fd);
  struct stat info {};
  ASSERT_EQ(stat(made.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);

  EXPECT_EQ(open_directory(made.c_str(), false, getuid() + 1), -1);
  EXPECT_EQ(errno, EPERM);
  ASSERT_EQ(chmod(made.c_str(), 0770), 0);
  EXPECT_EQ(open_directory(made.c_str(), true, getuid()), -1);
  EXPECT_EQ(errno, EPERM);
  ASSERT_EQ(chmod(made.c_str(), 0700), 0);
  ASSERT_EQ(symlink(made.c_str(), (scratch.path + "/link").c_str()), 0);
  EXPECT_EQ(open_directory((scratch.path + "/link").c_str(), true, getuid()), -1);
  EXPECT_EQ(open_directory((scratch.path + "/none").c_str(), false, getuid()), -1);
  EXPECT_EQ(errno, ENOENT);
}

// Directories of batch systems can be longer than a socket address.
TEST(Control, AddressesReachDeepDirectories) {
  const Scratch scratch;
  for (const std::string& path : {scratch.path, scratch.path + "/" + std::string(120, 'd')}) {
    const int directory = open_directory(path.c_str(), true, getuid());
    ASSERT_GE(directory, 0);
    sockaddr_un address{};
    socklen_t size = 0;
    ASSERT_TRUE(socket_address(directory, path.c_str(), "17.sock", address, size));
    const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(server, reinterpret_cast<sockaddr*>(&address), size), 0) << path;
    ASSERT_EQ(listen(server, 1), 0);
    EXPECT_EQ(access((path + "/17.sock").c_str(), F_OK), 0);

    const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), size), 0);
    Peer peer{};
    ASSERT_TRUE(ask_peer(client, peer));
    EXPECT_EQ(peer.pid, getpid());
    EXPECT_TRUE(may_talk(peer, getuid()));
    EXPECT_EQ(may_talk(peer, getuid() + 1), getuid() == 0);
    close(client);
    close(server);
    close(directory);
  }
}

}  // namespace
}  // namespace tidemark::control

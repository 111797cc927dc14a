// The server of numbers, and clients that behave badly.
#include "collector/serve/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "proto/base/descriptor.h"

namespace tidemark {
namespace {

using namespace std::chrono_literals;

constexpr HttpLimits kSmall = {
    .connections = 4, .request_bytes = 1024, .to_ask = 300ms, .to_take = 300ms};

class Client {
 public:
  explicit Client(const std::string& address) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    const timeval limit{20, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  Client& send(std::string_view text) {
    static_cast<void>(::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL));
    return *this;
  }
  // Until the server closes the connection.
  std::string receive() {
    std::string text;
    char piece[65536];
    ssize_t n = 0;
    while ((n = ::recv(fd_.get(), piece, sizeof piece, 0)) > 0) {
      text.append(piece, static_cast<size_t>(n));
    }
    return text;
  }
  int fd() const { return fd_.get(); }

 private:
  Descriptor fd_;
};

class HttpServerTest : public testing::Test {
 protected:
  void start(HttpServer::MakePage make, const HttpLimits& limits = kSmall) {
    auto server = HttpServer::listen("127.0.0.1:0", std::move(make), limits);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    address_ = server_->address();
    thread_ = std::thread([this] { server_->run(stop_.get()); });
  }
  void start() {
    start([](auto) { return ServedPage{"open\n# EOF\n", "plain\n"}; });
  }
  void TearDown() override {
    const uint64_t one = 1;
    ASSERT_EQ(::write(stop_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
    if (thread_.joinable()) thread_.join();
  }
  std::string ask(std::string_view text) { return Client(address_).send(text).receive(); }
  std::string status(std::string_view text) {
    const std::string answer = ask(text);
    return answer.substr(0, answer.find('\r'));
  }

  Descriptor stop_{::eventfd(0, 0)};
  std::unique_ptr<HttpServer> server_;
  std::string address_;
  std::thread thread_;
};

TEST_F(HttpServerTest, Answers) {
  start();
  EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 6\r\nConnection: close\r\n\r\nplain\n");
  EXPECT_EQ(ask("GET /metrics?x=1 HTTP/1.0\r\nACCEPT: text/plain;q=0.1, "
                "Application/OpenMetrics-text;version=1.0.0\r\n\r\n"),
            "HTTP/1.1 200 OK\r\n"
            "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
            "Content-Length: 11\r\nConnection: close\r\n\r\nopen\n# EOF\n");
  EXPECT_TRUE(ask("HEAD /metrics HTTP/1.1\r\n\r\n").ends_with("Connection: close\r\n\r\n"));
  EXPECT_NE(ask("GET / HTTP/1.1\n\n").find("tidemark serve"), std::string::npos);
  EXPECT_EQ(status("GET /metrics/x HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(status("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
}

TEST_F(HttpServerTest, RejectsWhatIsNoRequest) {
  start();
  EXPECT_EQ(status("\r\n\r\n"), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(status("GET /metrics\r\n\r\n"), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(status("GET /metrics HTTP/2.0\r\n\r\n"), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(status(std::string_view("\x16\x03\x01\0\0\n\n", 7)), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(status("GET /" + std::string(5000, 'a')),
            "HTTP/1.1 431 Request Header Fields Too Large");
  EXPECT_EQ(status("GET /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK");
}

TEST_F(HttpServerTest, HasADeadlineForEveryClient) {
  start([](auto) { return ServedPage{std::string(64 << 20, 'x'), std::string(64 << 20, 'x')}; });
  Client silent(address_);
  Client slow(address_);
  slow.send("GET /metr");
  Client deaf(address_);  // takes nothing of a long answer
  deaf.send("GET /metrics HTTP/1.1\r\n\r\n");
  Client gone(address_);
  gone.send("GET /metrics HTTP/1.1\r\n\r\n");
  ::shutdown(gone.fd(), SHUT_RDWR);
  EXPECT_EQ(silent.receive(), "");
  EXPECT_EQ(slow.receive(), "");
  // Those that still were connected did not keep others out.
  EXPECT_EQ(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK");
  std::this_thread::sleep_for(600ms);
  EXPECT_LT(deaf.receive().size(), size_t{64} << 20);
}

TEST_F(HttpServerTest, LimitsConnections) {
  start(
      [](auto) {
        return ServedPage{"", "plain\n"};
      },
      {.connections = 4, .request_bytes = 1024, .to_ask = 10s, .to_take = 10s});
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<Client>(address_));
  EXPECT_EQ(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 503 Service Unavailable");
  clients.pop_back();
  std::string answer;
  for (int i = 0; i < 200 && !answer.starts_with("HTTP/1.1 200"); ++i) {
    answer = status("GET / HTTP/1.1\r\n\r\n");
  }
  EXPECT_EQ(answer, "HTTP/1.1 200 OK");
}

// Who asks while a page is made gets that one.
TEST_F(HttpServerTest, MakesOnePageAtATimeAndNoneBeforeItIsAsked) {
  std::atomic<int> running{0};
  std::atomic<int> made{0};
  std::atomic<bool> hold{true};
  start(
      [&](auto) {
        EXPECT_EQ(running++, 0);
        const std::string number = std::to_string(made);
        while (hold.load()) std::this_thread::sleep_for(1ms);
        ++made;
        --running;
        return ServedPage{number, number};
      },
      {.connections = 16, .request_bytes = 1024, .to_ask = 300ms, .to_take = 300ms});
  EXPECT_EQ(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK");
  EXPECT_EQ(running, 0);
  Client first(address_);
  first.send("GET /metrics HTTP/1.1\r\n\r\n");
  while (running == 0) std::this_thread::sleep_for(1ms);
  Client second(address_);
  Client third(address_);
  second.send("GET /metrics HTTP/1.1\r\n\r\n");
  third.send("GET /metrics HTTP/1.1\r\n\r\n");
  // Meanwhile others are served, and those who wait for the page have no deadline.
  std::this_thread::sleep_for(400ms);
  EXPECT_EQ(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK");
  hold = false;
  EXPECT_TRUE(first.receive().ends_with("\r\n\r\n0"));
  EXPECT_TRUE(second.receive().ends_with("\r\n\r\n0"));
  EXPECT_TRUE(third.receive().ends_with("\r\n\r\n0"));
  EXPECT_TRUE(ask("GET /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n1"));
  EXPECT_EQ(made, 2);
}

TEST_F(HttpServerTest, TheTimeForAPageIsThatOfTheClient) {
  start([](std::chrono::milliseconds time) {
    return ServedPage{"", std::to_string(time.count())};
  });
  const auto time_for = [&](const std::string& header) {
    const std::string answer = ask("GET /metrics HTTP/1.1\r\n" + header + "\r\n\r\n");
    return answer.substr(answer.rfind('\n') + 1);
  };
  EXPECT_EQ(time_for("Host: x"), "8000");
  EXPECT_EQ(time_for("X-Prometheus-Scrape-Timeout-Seconds: 2"), "1500");
  EXPECT_EQ(time_for("X-Prometheus-Scrape-Timeout-Seconds: 0.5"), "375");
  EXPECT_EQ(time_for("X-Prometheus-Scrape-Timeout-Seconds: 60"), "8000");
  EXPECT_EQ(time_for("X-Prometheus-Scrape-Timeout-Seconds: 0.0001"), "100");
  for (const char* bad : {"", "x", "-1", "nan", "inf", "1e300", "0"}) {
    EXPECT_EQ(time_for(std::string("X-Prometheus-Scrape-Timeout-Seconds: ") + bad), "8000") << bad;
  }
}

TEST(HttpServer, Addresses) {
  const auto none = [](auto) { return ServedPage(); };
  for (const char* bad : {"", ":", "9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", ":9464",
                          "example.org:9464", "127.0.0.1:99999999999"}) {
    const auto server = HttpServer::listen(bad, none);
    ASSERT_FALSE(server) << bad;
    EXPECT_TRUE(server.error().message.starts_with(std::string("--listen ") + bad + ":"));
  }
  const auto local = HttpServer::listen("localhost:0", none);
  ASSERT_TRUE(local);
  EXPECT_TRUE((*local)->loopback());
  const auto taken = HttpServer::listen((*local)->address(), none);
  ASSERT_FALSE(taken);
  EXPECT_NE(taken.error().message.find("in use"), std::string::npos);
  const auto open = HttpServer::listen("0.0.0.0:0", none);
  ASSERT_TRUE(open);
  EXPECT_FALSE((*open)->loopback());
}

}  // namespace
}  // namespace tidemark

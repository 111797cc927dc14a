#include "collector/serve/http_server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <list>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/descriptor.h"
#include "proto/base/leading_number.h"

namespace tidemark {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kOpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
constexpr const char* kPlainMetrics = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char* kText = "text/plain; charset=utf-8";

// For a client that does not say how long it waits.
constexpr milliseconds kLongest{8000};
constexpr milliseconds kShortest{100};

struct Request {
  std::string_view method;
  std::string_view path;  // without the query
  bool open_metrics = false;
  milliseconds patience = kLongest;
};

// A part of the time that the client waits, which it needs to take the page.
milliseconds patience_of(std::string_view seconds) {
  constexpr double kPart = 750;  // ms per second
  while (seconds.starts_with(' ')) seconds.remove_prefix(1);
  const std::optional<LeadingNumber> number = leading_number(seconds);
  if (!number || !(number->value > 0 && number->value < 1e6)) return kLongest;
  return std::clamp(milliseconds(static_cast<int64_t>(number->value * kPart)), kShortest, kLongest);
}

std::string lowered(std::string_view text) {
  std::string low(text);
  for (char& c : low) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return low;
}

std::string_view take_line(std::string_view& rest) {
  const size_t end = rest.find('\n');
  std::string_view line = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// The whole head of a request. Nothing if it is not one of HTTP/1.
std::optional<Request> parse(std::string_view head) {
  const std::string_view line = take_line(head);
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || last <= first + 1) return std::nullopt;
  if (!line.substr(last + 1).starts_with("HTTP/1.")) return std::nullopt;
  Request request;
  request.method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  request.path = target.substr(0, target.find('?'));
  while (!head.empty()) {
    const std::string header = lowered(take_line(head));
    if (header.starts_with("accept:")) {
      request.open_metrics |= header.find("application/openmetrics-text") != std::string::npos;
    }
    constexpr std::string_view kTimeout = "x-prometheus-scrape-timeout-seconds:";
    if (header.starts_with(kTimeout)) {
      request.patience = patience_of(std::string_view(header).substr(kTimeout.size()));
    }
  }
  return request;
}

bool has_whole_head(std::string_view text) {
  return text.find("\r\n\r\n") != std::string_view::npos ||
         text.find("\n\n") != std::string_view::npos;
}

std::string response(const char* status, const char* type, std::string_view body, bool with_body,
                     const char* more = "") {
  std::string text = fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n",
      status, type, body.size(), more);
  if (with_body) text += body;
  return text;
}

struct Connection {
  explicit Connection(int fd) : socket(fd) {}

  enum class State : uint8_t { kAsking, kWaiting, kTaking, kDone };
  Descriptor socket;
  State state = State::kAsking;
  Clock::time_point deadline;
  std::string text;  // of the request, then of the answer
  size_t sent = 0;
  milliseconds patience = kLongest;
  bool open_metrics = false;
  bool with_body = true;
};

class PageServer : public HttpServer {
 public:
  PageServer(int listener, MakePage make, const HttpLimits& limits)
      : listener_(listener),
        made_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        make_(std::move(make)),
        limits_(limits) {}

  ~PageServer() override {
    if (maker_.joinable()) maker_.join();
  }

  std::string address() const override {
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    char host[64] = "";
    char port[16] = "";
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own), &size);
    ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV);
    return own.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                     : fmt::format("{}:{}", host, port);
  }

  bool loopback() const override {
    const std::string own = address();
    return own.starts_with("127.") || own.starts_with("[::1]");
  }

  void run(int stop_fd) override {
    bool stopping = false;
    while (!stopping || making_) {
      std::vector<pollfd> waits = {{stopping ? -1 : stop_fd, POLLIN, 0},
                                   {made_.get(), POLLIN, 0},
                                   {stopping || paused_ ? -1 : listener_.get(), POLLIN, 0}};
      for (const Connection& c : connections_) {
        const short events = c.state == Connection::State::kAsking   ? POLLIN
                             : c.state == Connection::State::kTaking ? POLLOUT
                                                                     : short{0};
        waits.push_back({c.socket.get(), events, 0});
      }
      const int ready = ::poll(waits.data(), waits.size(), timeout_ms());
      paused_ = false;
      if (ready < 0 && errno != EINTR) return;
      if (ready > 0) {
        stopping |= waits[0].revents != 0;
        size_t i = 3;
        for (Connection& c : connections_) {
          if (waits[i++].revents != 0) go_on(c, waits[i - 1].revents);
        }
        if (waits[1].revents != 0) hand_out();
        if (waits[2].revents != 0) accept_one();
      }
      start_page();
      const Clock::time_point now = Clock::now();
      std::erase_if(connections_, [&](const Connection& c) {
        return c.state == Connection::State::kDone ||
               (c.state != Connection::State::kWaiting && now >= c.deadline);
      });
    }
  }

 private:
  int timeout_ms() const {
    constexpr int kPauseMs = 200;
    Clock::time_point first = Clock::time_point::max();
    for (const Connection& c : connections_) {
      if (c.state != Connection::State::kWaiting) first = std::min(first, c.deadline);
    }
    if (first == Clock::time_point::max()) return paused_ ? kPauseMs : -1;
    const auto left = std::chrono::ceil<milliseconds>(first - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, paused_ ? kPauseMs : 60'000));
  }

  void accept_one() {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      paused_ = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
      return;
    }
    Connection& c = connections_.emplace_back(fd);
    c.deadline = Clock::now() + limits_.to_ask;
    if (connections_.size() > limits_.connections) {
      answer(c, response("503 Service Unavailable", kText, "too many connections\n", true));
    }
  }

  void go_on(Connection& c, short events) {
    switch (c.state) {
      case Connection::State::kAsking:
        return read(c);
      case Connection::State::kTaking:
        return write(c);
      case Connection::State::kWaiting:
        // Gone, or the other side is shut down, which is not told apart.
        if ((events & (POLLERR | POLLHUP | POLLNVAL)) != 0) c.state = Connection::State::kDone;
        return;
      case Connection::State::kDone:
        return;
    }
  }

  void read(Connection& c) {
    char piece[4096];
    const ssize_t n = ::recv(c.socket.get(), piece, sizeof piece, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      c.state = Connection::State::kDone;
      return;
    }
    c.text.append(piece, static_cast<size_t>(n));
    if (has_whole_head(c.text)) return reply(c);
    if (c.text.size() >= limits_.request_bytes) {
      answer(c, response("431 Request Header Fields Too Large", kText, "request too long\n", true));
    }
  }

  void reply(Connection& c) {
    const std::optional<Request> request = parse(c.text);
    if (!request) return answer(c, response("400 Bad Request", kText, "not HTTP/1.1\n", true));
    c.with_body = request->method != "HEAD";
    if (c.with_body && request->method != "GET") {
      return answer(c, response("405 Method Not Allowed", kText, "only GET is supported\n", true,
                                "Allow: GET, HEAD\r\n"));
    }
    if (request->path == "/") {
      return answer(c, response("200 OK", kText,
                                "tidemark serve: GPU memory of the processes on this machine that "
                                "have tidemark loaded.\nThe numbers are at /metrics.\n",
                                c.with_body));
    }
    if (request->path != "/metrics") {
      return answer(c, response("404 Not Found", kText, "there is only /metrics\n", c.with_body));
    }
    c.open_metrics = request->open_metrics;
    c.patience = request->patience;
    c.state = Connection::State::kWaiting;
  }

  void answer(Connection& c, std::string text) {
    c.text = std::move(text);
    c.sent = 0;
    c.state = Connection::State::kTaking;
    c.deadline = Clock::now() + limits_.to_take;
    write(c);
  }

  void write(Connection& c) {
    const ssize_t n =
        ::send(c.socket.get(), c.text.data() + c.sent, c.text.size() - c.sent, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno != EAGAIN && errno != EINTR) c.state = Connection::State::kDone;
      return;
    }
    c.sent += static_cast<size_t>(n);
    if (c.sent < c.text.size()) return;
    // What was not read would reset the connection, and the answer might be lost with it.
    ::shutdown(c.socket.get(), SHUT_WR);
    char rest[4096];
    for (int more = 8; more > 0 && ::recv(c.socket.get(), rest, sizeof rest, 0) > 0;) --more;
    c.state = Connection::State::kDone;
  }

  void start_page() {
    bool asked = false;
    milliseconds patience = kLongest;
    for (const Connection& c : connections_) {
      if (c.state != Connection::State::kWaiting) continue;
      asked = true;
      patience = std::min(patience, c.patience);
    }
    if (making_ || !asked) return;
    making_ = true;
    maker_ = std::thread([this, patience] {
      page_ = make_(patience);
      const uint64_t one = 1;
      static_cast<void>(!::write(made_.get(), &one, sizeof one));
    });
  }

  void hand_out() {
    uint64_t count = 0;
    if (::read(made_.get(), &count, sizeof count) != sizeof count) return;
    maker_.join();
    making_ = false;
    for (Connection& c : connections_) {
      if (c.state != Connection::State::kWaiting) continue;
      answer(c, response("200 OK", c.open_metrics ? kOpenMetrics : kPlainMetrics,
                         c.open_metrics ? page_.open_metrics : page_.plain_text, c.with_body));
    }
  }

  Descriptor listener_;
  Descriptor made_;  // raised by the thread that makes a page
  MakePage make_;
  HttpLimits limits_;
  std::list<Connection> connections_;
  std::thread maker_;
  ServedPage page_;  // of `maker_` while `making_`
  bool making_ = false;
  bool paused_ = false;  // no descriptor is left for another connection
};

Error not_an_address(const std::string& address) {
  return {
      fmt::format("--listen {}: not an address; use HOST:PORT, such as 127.0.0.1:9464", address)};
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const std::string& address, MakePage make,
                                                       const HttpLimits& limits) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return not_an_address(address);
  uint16_t port = 0;
  const char* const end = address.data() + address.size();
  const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, port);
  if (error != std::errc() || stop != end) return not_an_address(address);
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host == "localhost") host = "127.0.0.1";
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) {
    return not_an_address(address);
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (fd < 0 || ::bind(fd, found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd, 64) != 0) {
    const std::string reason = std::strerror(errno);
    if (fd >= 0) ::close(fd);
    return Error{fmt::format("--listen {}: {}", address, reason)};
  }
  return std::unique_ptr<HttpServer>(std::make_unique<PageServer>(fd, std::move(make), limits));
}

}  // namespace tidemark

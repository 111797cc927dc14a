// Serves one page of numbers over HTTP/1.1: GET and HEAD of /metrics, and a line of text at /.
//
// One thread waits in poll() for all connections. The page is made on another thread, at most one
// at a time, and only when somebody asks; who asks while it is being made gets that one. Everything
// has a limit: connections, the size of a request, the time to send one and to take the answer.
// Prometheus says how long it waits, so that a page without those who do not answer comes in time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "proto/base/result.h"

namespace tidemark {

// The same numbers in both formats of open_metrics.h.
struct ServedPage {
  std::string open_metrics;
  std::string plain_text;
};

struct HttpLimits {
  size_t connections = 32;
  size_t request_bytes = 8192;
  std::chrono::milliseconds to_ask{5000};
  std::chrono::milliseconds to_take{10000};
};

class HttpServer {
 public:
  // Within that time, if possible. Does not throw.
  using MakePage = std::function<ServedPage(std::chrono::milliseconds)>;

  // `address`: "127.0.0.1:9464", "[::1]:9464", "localhost:0". Port 0: any that is free.
  static Result<std::unique_ptr<HttpServer>> listen(const std::string& address, MakePage make,
                                                    const HttpLimits& limits = {});
  virtual ~HttpServer() = default;

  // "127.0.0.1:9464", with the port that is used.
  virtual std::string address() const = 0;
  // Whether only this machine can connect.
  virtual bool loopback() const = 0;
  // Returns when `stop_fd` becomes readable and no page is being made.
  virtual void run(int stop_fd) = 0;
};

}  // namespace tidemark

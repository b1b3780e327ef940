#include "server/http/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <future>
#include <random>
#include <thread>

#include "base/log.h"
#include "server/http/http_context.h"
#include "server/http/openai_format.h"
#include "server/http/session.h"

namespace headroom::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr std::chrono::milliseconds kAcceptRetry{50};

std::string RandomPrefix() {
  std::random_device device;
  return fmt::format("{:08x}", device());
}

// Written without reading the request: the connection is over the limit.
std::string TooManyConnections(const std::string& request_id) {
  ApiError error;
  error.type = "overloaded_error";
  error.code = "queue_full";
  error.message = "too many open connections on this server";
  const std::string body = ErrorBody(error);
  return fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
      "x-request-id: {}\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: {}\r\n\r\n{}",
      request_id, body.size(), body);
}

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpOptions& options, const Lifecycle& lifecycle, const Clock& clock)
      : frontend(static_cast<size_t>(options.frontend_threads)),
        acceptor(io),
        retry(io),
        work(asio::make_work_guard(io)) {
    context = std::make_unique<HttpContext>(options, lifecycle, clock, io, frontend);
    context->id_prefix = RandomPrefix();
  }

  Status Listen();
  void Accept();
  void OnAccept(boost::system::error_code error, tcp::socket socket);

  std::unique_ptr<HttpContext> context;  // first: sessions that `io` still holds end after the rest
  asio::io_context io;
  asio::thread_pool frontend;
  tcp::acceptor acceptor;
  asio::steady_timer retry;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::thread thread;
  int32_t port = 0;
  bool stopped = false;
};

Status HttpServer::Impl::Listen() {
  boost::system::error_code error;
  const HttpOptions& options = context->options;
  const auto address = asio::ip::make_address(options.host, error);
  if (error) {
    return InvalidArgument("--host: wanted an IP address such as 127.0.0.1");
  }
  const tcp::endpoint endpoint(address, static_cast<uint16_t>(options.port));
  acceptor.open(endpoint.protocol(), error);
  if (!error) {
    acceptor.set_option(asio::socket_base::reuse_address(true), error);
  }
  if (!error) {
    acceptor.bind(endpoint, error);
  }
  if (!error) {
    acceptor.listen(asio::socket_base::max_listen_connections, error);
  }
  if (error) {
    return Unavailable("cannot listen on {}:{}: {}", options.host, options.port, error.message());
  }
  port = acceptor.local_endpoint(error).port();
  return OkStatus();
}

void HttpServer::Impl::Accept() {
  acceptor.async_accept([this](boost::system::error_code error, tcp::socket socket) {
    OnAccept(error, std::move(socket));
  });
}

void HttpServer::Impl::OnAccept(boost::system::error_code error, tcp::socket socket) {
  if (error == asio::error::operation_aborted) {
    return;
  }
  if (error) {
    // Out of descriptors, most likely: give others time to end.
    LogWarning("event=accept_failed reason=\"{}\"", error.message());
    retry.expires_after(kAcceptRetry);
    retry.async_wait([this](boost::system::error_code cancelled) {
      if (!cancelled) {
        Accept();
      }
    });
    return;
  }
  if (context->num_connections.load() >= context->options.max_connections) {
    boost::system::error_code ignored;
    socket.non_blocking(true, ignored);
    const std::string id = context->NextRequestId();
    socket.write_some(asio::buffer(TooManyConnections(id)), ignored);
  } else {
    std::make_shared<Session>(std::move(socket), *context)->Start();
  }
  Accept();
}

StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(const HttpOptions& options,
                                                         const Lifecycle& lifecycle,
                                                         const Clock& clock) {
  auto impl = std::make_unique<Impl>(options, lifecycle, clock);
  HEADROOM_RETURN_IF_ERROR(impl->Listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { Stop(); }

int32_t HttpServer::port() const { return impl_->port; }

void HttpServer::Start() {
  asio::post(impl_->io, [this] { impl_->Accept(); });
  impl_->thread = std::thread([this] { impl_->io.run(); });
}

void HttpServer::Attach(Runtime& runtime, GenerationService& service, ServerMetrics& metrics) {
  std::promise<void> attached;
  asio::post(impl_->io, [&] {
    impl_->context->serving.emplace(ServingParts{runtime, service, metrics});
    attached.set_value();
  });
  attached.get_future().wait();
}

int64_t HttpServer::num_connections() const { return impl_->context->num_connections.load(); }
int64_t HttpServer::num_answers() const { return impl_->context->num_answers.load(); }

void HttpServer::Stop() {
  if (impl_->stopped) {
    return;
  }
  impl_->stopped = true;
  impl_->frontend.join();
  impl_->work.reset();
  impl_->io.stop();
  if (impl_->thread.joinable()) {
    impl_->thread.join();
  }
  // What was attached may end before the sessions that the I/O context still holds.
  impl_->context->serving.reset();
}

}  // namespace headroom::server

#include "server/http/session.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstring>

#include "base/log.h"
#include "server/http/answer.h"
#include "server/http/openai_format.h"
#include "server/http/openai_parse.h"

namespace headroom::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr uint32_t kMaxHeaderBytes = 32 * 1024;
constexpr size_t kMaxEchoedIdBytes = 128;
constexpr size_t kMaxEarlyBytes = 64 * 1024;  // of the next request while one is answered
constexpr int64_t kMaxDrainedBytes = int64_t{8} << 20;
constexpr int32_t kDrainTimeoutMs = 2000;

constexpr const char* kJson = "application/json";
constexpr const char* kText = "text/plain; charset=utf-8";

bool IsSafeId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxEchoedIdBytes &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == ':';
         });
}

ApiError HttpFault(int status, const char* code, std::string message) {
  ApiError error = BadRequest(code, std::move(message), "");
  error.http_status = status;
  return error;
}

ApiError NotServing(LifecycleState state) {
  ApiError error;
  error.http_status = 503;
  error.type = "overloaded_error";
  error.code = state == LifecycleState::kDraining ? "draining" : "model_loading";
  error.message = state == LifecycleState::kDraining ? "the server is shutting down"
                                                     : "the model is being loaded";
  error.retry_after_s = 5;
  return error;
}

// Whether everyone on the way reads the same length out of these headers: one Content-Length of
// digits alone, or a Transfer-Encoding of chunked alone. Lists such as "5, 5" are legal HTTP.
bool HasPlainFraming(const http::fields& headers) {
  int num_lengths = 0;
  int num_encodings = 0;
  for (const auto& field : headers) {
    const auto value = field.value();
    if (field.name() == http::field::content_length) {
      ++num_lengths;
      if (!std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; })) {
        return false;
      }
    } else if (field.name() == http::field::transfer_encoding) {
      ++num_encodings;
      if (!beast::iequals(value, "chunked")) {
        return false;
      }
    }
  }
  return num_lengths + num_encodings <= 1;
}

const char* ReasonPhrase(int status) {
  return http::obsolete_reason(static_cast<http::status>(status)).data();
}

}  // namespace

Session::Session(asio::ip::tcp::socket socket, HttpContext& context)
    : context_(context), stream_(std::move(socket)) {
  context_.SetConnections(++context_.num_connections);
  boost::system::error_code ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
}

Session::~Session() { context_.SetConnections(--context_.num_connections); }

void Session::SetTimeout(int32_t milliseconds) {
  stream_.expires_after(std::chrono::milliseconds(milliseconds));
}

void Session::ReadHeader() {
  parser_.emplace();
  parser_->header_limit(kMaxHeaderBytes);
  parser_->body_limit(static_cast<uint64_t>(context_.options.max_body_bytes));
  SetTimeout(first_request_ ? context_.options.header_timeout_ms
                            : context_.options.idle_timeout_ms);
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](beast::error_code error, size_t) {
                            self->OnHeader(error);
                          });
}

void Session::OnHeader(beast::error_code error) {
  first_request_ = false;
  request_id_ = context_.NextRequestId();
  if (error) {
    return OnReadError(error);
  }
  const auto& request = parser_->get();
  version_ = request.version();
  keep_alive_ = request.keep_alive();
  is_head_ = request.method() == http::verb::head;
  target_ = std::string(request.target());
  const auto client_id = request["x-request-id"];
  client_request_id_ = IsSafeId({client_id.data(), client_id.size()})
                           ? std::string(client_id)
                           : std::string();
  if (!HasPlainFraming(request.base())) {
    return OnReadError(http::error::bad_content_length);
  }
  if (!request[http::field::content_encoding].empty()) {
    keep_alive_ = false;
    return RespondError(HttpFault(415, "unsupported_encoding", "content-encoding: wanted none"));
  }
  if (beast::iequals(request[http::field::expect], "100-continue")) {
    auto self = shared_from_this();
    return Write("HTTP/1.1 100 Continue\r\n\r\n", [self] { self->ReadBody(); });
  }
  ReadBody();
}

void Session::ReadBody() {
  if (parser_->is_done()) {
    return Route();
  }
  SetTimeout(context_.options.body_timeout_ms);
  http::async_read_some(stream_, buffer_, *parser_,
                        [self = shared_from_this()](beast::error_code error, size_t) {
                          if (error) {
                            return self->OnReadError(error);
                          }
                          self->ReadBody();
                        });
}

void Session::OnReadError(beast::error_code error) {
  keep_alive_ = false;
  if (error == http::error::end_of_stream || error == asio::error::operation_aborted ||
      error == asio::error::connection_reset || error == http::error::partial_message) {
    return Abort();
  }
  if (error == http::error::body_limit) {
    return RespondError(HttpFault(413, "payload_too_large",
                                  fmt::format("body: wanted at most {} bytes",
                                              context_.options.max_body_bytes)));
  }
  if (error == http::error::header_limit) {
    return RespondError(
        HttpFault(431, "headers_too_large",
                  fmt::format("headers: wanted at most {} bytes", kMaxHeaderBytes)));
  }
  if (error == beast::error::timeout) {
    return Abort();
  }
  RespondError(HttpFault(400, "bad_framing", "the request is not valid HTTP/1.1"));
}

const char* Session::EndpointLabel() const {
  static constexpr const char* kKnown[] = {
      "/v1/chat/completions", "/v1/completions", "/v1/models", "/health",
      "/livez",               "/readyz",         "/metrics",   "/version"};
  const std::string_view path = std::string_view(target_).substr(0, target_.find('?'));
  for (const char* known : kKnown) {
    if (path == known || (path.starts_with(known) && path[std::string_view(known).size()] == '/')) {
      return known;
    }
  }
  return "other";
}

void Session::Route() {
  const auto& request = parser_->get();
  const std::string method(request.method_string());
  const std::string path = target_.substr(0, target_.find('?'));
  if (RouteProbe(method, path)) {
    return;
  }
  if (path == "/v1/chat/completions" || path == "/v1/completions") {
    if (method != "POST") {
      return RespondError(HttpFault(405, "method_not_allowed", "method: wanted POST"),
                          {{"Allow", "POST"}});
    }
    return StartAnswer(path == "/v1/chat/completions");
  }
  RespondError(HttpFault(404, "not_found", "no such path"));
}

// Answered from atomics, never through the queue.
bool Session::RouteProbe(const std::string& method, const std::string& path) {
  const bool is_models = path == "/v1/models" || path.starts_with("/v1/models/");
  const bool is_probe = path == "/health" || path == "/livez" || path == "/readyz" ||
                        path == "/metrics" || path == "/version";
  if (!is_models && !is_probe) {
    return false;
  }
  if (method != "GET") {
    RespondError(HttpFault(405, "method_not_allowed", "method: wanted GET"), {{"Allow", "GET"}});
  } else if (path == "/version") {
    Respond(200, kJson, VersionBody());
  } else if (path == "/livez" || path == "/health") {
    RespondAlive();
  } else if (!context_.serving.has_value()) {
    RespondError(NotServing(LifecycleState::kLoading));
  } else if (path == "/metrics") {
    Respond(200, "text/plain; version=0.0.4; charset=utf-8", context_.serving->metrics.Text());
  } else if (path == "/readyz") {
    const LifecycleState state = context_.lifecycle.state();
    if (state == LifecycleState::kReady) {
      Respond(200, kText, "ok\n");
    } else {
      RespondError(NotServing(state));
    }
  } else {
    RespondModels(path);
  }
  return true;
}

// A process that still loads is alive.
void Session::RespondAlive() {
  constexpr int64_t kStaleNs = 120'000'000'000;
  const bool alive =
      !context_.serving.has_value() ||
      context_.clock.NowNs() - context_.serving->runtime.loop().heartbeat_ns() < kStaleNs;
  if (alive) {
    Respond(200, kText, "ok\n");
  } else {
    Respond(503, kText, "engine stalled\n");
  }
}

void Session::RespondModels(const std::string& path) {
  const Runtime& runtime = context_.serving->runtime;
  if (path == "/v1/models") {
    Respond(200, kJson, ModelListBody(runtime));
  } else if (path == "/v1/models/" + runtime.model_name()) {
    Respond(200, kJson, ModelBody(runtime));
  } else {
    RespondError(HttpFault(404, "model_not_found", "no such model; see /v1/models"));
  }
}

void Session::StartAnswer(bool chat) {
  const LifecycleState state = context_.lifecycle.state();
  if (state != LifecycleState::kReady || !context_.serving.has_value()) {
    return RespondError(NotServing(state));
  }
  Headers headers;
  for (const auto& field : parser_->get()) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
    headers.emplace_back(std::move(name), std::string(field.value()));
  }
  answer_ = std::make_shared<Answer>(
      shared_from_this(), chat ? Endpoint::kChatCompletions : Endpoint::kCompletions);
  stream_.expires_never();
  answer_->Start(std::move(parser_->get().body()), std::move(headers));
  WatchDisconnect();
}

// While an answer is made the socket becoming readable means that the client has closed it, or has
// sent its next request early.
void Session::WatchDisconnect() {
  watching_ = true;
  stream_.socket().async_wait(asio::ip::tcp::socket::wait_read,
                              [self = shared_from_this()](beast::error_code error) {
                                self->OnWatch(error);
                              });
}

void Session::OnWatch(beast::error_code error) {
  watching_ = false;
  if (error || answer_ == nullptr || aborted_) {
    return;
  }
  // What a client sends early is kept for the next request, so that its end stays visible.
  if (buffer_.size() >= kMaxEarlyBytes) {
    return;  // a failed write will tell of a disconnect
  }
  const auto room = buffer_.prepare(kMaxEarlyBytes - buffer_.size());
  const ssize_t got =
      ::recv(stream_.socket().native_handle(), room.data(), room.size(), MSG_DONTWAIT);
  if (got > 0) {
    buffer_.commit(static_cast<size_t>(got));
    return WatchDisconnect();
  }
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return WatchDisconnect();
  }
  Abort();
}

std::string Session::HeaderText(int status, const std::string& content_type, const Headers& extra,
                                std::optional<size_t> content_length) const {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: headroom\r\n", status,
                                 ReasonPhrase(status));
  text += fmt::format("Content-Type: {}\r\nx-request-id: {}\r\n", content_type, request_id_);
  if (!client_request_id_.empty()) {
    text += fmt::format("x-client-request-id: {}\r\n", client_request_id_);
  }
  for (const auto& [name, value] : extra) {
    text += fmt::format("{}: {}\r\n", name, value);
  }
  if (content_length.has_value()) {
    text += fmt::format("Content-Length: {}\r\n", *content_length);
  } else if (!http_1_0()) {
    text += "Transfer-Encoding: chunked\r\n";
  }
  text += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return text;
}

void Session::Write(std::string bytes, std::function<void()> done) {
  out_ = std::move(bytes);
  SetTimeout(context_.options.write_timeout_ms);
  asio::async_write(stream_, asio::buffer(out_),
                    [self = shared_from_this(), done = std::move(done)](beast::error_code error,
                                                                        size_t) {
                      if (error || self->aborted_) {
                        return self->Abort();
                      }
                      self->stream_.expires_never();
                      done();
                    });
}

void Session::Respond(int status, const std::string& content_type, std::string body,
                      const Headers& extra) {
  if (aborted_) {
    return;
  }
  if (context_.serving.has_value()) {
    context_.serving->metrics.CountResponse(EndpointLabel(), status);
  }
  std::string bytes = HeaderText(status, content_type, extra, body.size());
  if (!is_head_) {
    bytes += body;
  }
  Write(std::move(bytes), [self = shared_from_this()] { self->NextRequest(); });
}

void Session::RespondError(const ApiError& error, const Headers& extra) {
  Headers headers = extra;
  if (error.retry_after_s.has_value()) {
    headers.emplace_back("Retry-After", fmt::format("{}", *error.retry_after_s));
  }
  Respond(error.http_status, kJson, ErrorBody(error), headers);
}

void Session::BeginStream(const Headers& extra, std::function<void()> done) {
  if (aborted_) {
    return;
  }
  context_.serving->metrics.CountResponse(EndpointLabel(), 200);
  keep_alive_ = keep_alive_ && !http_1_0();
  Headers headers = extra;
  headers.emplace_back("Cache-Control", "no-cache");
  headers.emplace_back("X-Accel-Buffering", "no");
  Write(HeaderText(200, "text/event-stream; charset=utf-8", headers, std::nullopt),
        std::move(done));
}

void Session::WriteStream(const std::string& piece, std::function<void()> done) {
  if (aborted_) {
    return;
  }
  Write(http_1_0() ? piece : fmt::format("{:x}\r\n{}\r\n", piece.size(), piece), std::move(done));
}

void Session::EndStream(bool close) {
  if (aborted_) {
    return;
  }
  keep_alive_ = keep_alive_ && !close;
  if (http_1_0()) {
    return NextRequest();
  }
  Write("0\r\n\r\n", [self = shared_from_this()] { self->NextRequest(); });
}

void Session::NextRequest() {
  answer_.reset();
  if (!keep_alive_) {
    return CloseGracefully();
  }
  if (watching_) {
    // The watch would see the next request's bytes; it ends on its own when they come.
    boost::system::error_code ignored;
    stream_.socket().cancel(ignored);
    return asio::post(context_.io, [self = shared_from_this()] { self->ReadHeader(); });
  }
  ReadHeader();
}

// Sends FIN and reads what still arrives for a moment, so that the answer is not lost to a reset.
void Session::CloseGracefully() {
  boost::system::error_code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  if (watching_) {
    stream_.socket().cancel(ignored);
  }
  DrainInput();
}

void Session::DrainInput() {
  SetTimeout(kDrainTimeoutMs);
  out_.resize(64 * 1024);
  stream_.async_read_some(asio::buffer(out_.data(), out_.size()),
                          [self = shared_from_this()](beast::error_code error, size_t got) {
                            self->drained_bytes_ += static_cast<int64_t>(got);
                            if (error || self->drained_bytes_ > kMaxDrainedBytes) {
                              return self->Abort();
                            }
                            self->DrainInput();
                          });
}

void Session::Abort() {
  if (aborted_) {
    return;
  }
  aborted_ = true;
  if (answer_ != nullptr) {
    std::shared_ptr<Answer> answer = std::move(answer_);
    answer_.reset();
    answer->OnClientGone();
  }
  boost::system::error_code ignored;
  stream_.socket().close(ignored);
}

}  // namespace headroom::server

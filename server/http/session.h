// One HTTP/1.1 connection: reads requests one after the other, routes them, writes answers.
//
// I/O thread only. A session lives as long as an operation on its socket does.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/http/http_context.h"

namespace headroom::server {

class Answer;

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(boost::asio::ip::tcp::socket socket, HttpContext& context);
  ~Session();

  void Start() { ReadHeader(); }

  HttpContext& context() { return context_; }
  const std::string& request_id() const { return request_id_; }
  bool http_1_0() const { return version_ == 10; }

  using Headers = std::vector<std::pair<std::string, std::string>>;
  // Writes one whole response and goes on with the connection.
  void Respond(int status, const std::string& content_type, std::string body,
               const Headers& extra = {});
  void RespondError(const ApiError& error, const Headers& extra = {});

  // A response in pieces. BeginStream sends the header; WriteStream sends a piece and calls
  // `done` when the socket took it; EndStream ends the body, and the connection where
  // `close` says so.
  void BeginStream(const Headers& extra, std::function<void()> done);
  void WriteStream(const std::string& piece, std::function<void()> done);
  void EndStream(bool close);

  // Ends the connection at once (the client is gone, or too slow).
  void Abort();

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void ReadHeader();
  void OnHeader(boost::beast::error_code error);
  void ReadBody();
  void OnReadError(boost::beast::error_code error);
  void Route();
  bool RouteProbe(const std::string& method, const std::string& path);
  void RouteGeneration();
  void StartAnswer(bool chat);
  void WatchDisconnect();
  void OnWatch(boost::beast::error_code error);
  void Write(std::string bytes, std::function<void()> done);
  std::string HeaderText(int status, const std::string& content_type, const Headers& extra,
                         std::optional<size_t> content_length) const;
  void NextRequest();
  void CloseGracefully();
  void DrainInput();
  void SetTimeout(int32_t milliseconds);
  void RespondAlive();
  void RespondModels(const std::string& path);
  const char* EndpointLabel() const;

  HttpContext& context_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::shared_ptr<Answer> answer_;  // while a generation is being answered
  std::string out_;                 // bytes of the write in progress
  std::string request_id_;
  std::string client_request_id_;  // echoed; empty: none or not safe
  std::string target_;
  int64_t drained_bytes_ = 0;
  unsigned version_ = 11;
  bool first_request_ = true;
  bool keep_alive_ = true;
  bool is_head_ = false;  // the answer has no body
  bool watching_ = false;
  bool aborted_ = false;
};

}  // namespace headroom::server

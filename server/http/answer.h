// One generation on a session: submits it off the I/O thread, follows its events, writes JSON or
// SSE, and cancels it when the client goes away.
//
// I/O thread but for the parse-and-submit job. Everything that may outlive the session holds the
// answer by shared_ptr; the answer lets go of the session when it ends.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/http/openai_format.h"
#include "server/http/session.h"

namespace headroom::server {

// GET /version.
std::string VersionBody();

class Answer : public std::enable_shared_from_this<Answer> {
 public:
  Answer(std::shared_ptr<Session> session, Endpoint endpoint);
  ~Answer();

  // Parses, validates and submits on the front-end pool.
  void Start(std::string body, Session::Headers headers);
  // The connection is gone: cancels what was submitted, now or once it is.
  void OnClientGone();

 private:
  struct Outcome;  // of the front-end job

  // Front-end pool.
  void ParseAndSubmit(const std::string& body, const Session::Headers& headers, Outcome* outcome);
  void OnSubmitted(std::shared_ptr<Outcome> outcome);
  void OnWake();
  void Pump();
  // Takes what the streams have; returns the SSE text to write (streaming) and notes ends.
  std::string TakeEvents();
  void TakeEvent(size_t index, const engine::RequestEvent& event, std::string* sse);
  void ObserveTokens();
  void FinishIfDone();
  void FailWith(const ApiError& error);
  void ArmKeepAlive();
  void OnKeepAlive();
  void End();
  Session::Headers BudgetHeaders() const;

  HttpContext& context_;
  std::shared_ptr<Session> session_;  // null once ended
  const Endpoint endpoint_;
  boost::asio::steady_timer keep_alive_timer_;
  std::optional<Submission> submission_;
  AnswerContext answer_;
  std::vector<ChoiceState> choices_;
  std::optional<ApiError> failure_;
  int64_t start_ns_ = 0;
  int64_t last_token_ns_ = 0;  // 0: none yet
  bool streaming_ = false;
  bool header_sent_ = false;
  bool writing_ = false;
  bool client_gone_ = false;
};

}  // namespace headroom::server

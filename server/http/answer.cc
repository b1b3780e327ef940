#include "server/http/answer.h"

#include <boost/asio/post.hpp>
#include <chrono>
#include <exception>
#include <utility>

#include "base/log.h"

namespace headroom::server {
namespace {

namespace asio = boost::asio;

std::string Sse(const std::string& json) { return "data: " + json + "\n\n"; }

ApiError ShuttingDown() {
  ApiError error;
  error.http_status = 503;
  error.type = "overloaded_error";
  error.code = "server_shutting_down";
  error.message = "the server stopped before the answer was complete";
  return error;
}

}  // namespace

std::string VersionBody() {
  return DumpJson(Json{{"version", HEADROOM_VERSION}, {"name", "headroom"}});
}

// What the front-end job hands back to the I/O thread.
struct Answer::Outcome {
  std::optional<ApiError> error;
  GenerationRequest request;
  std::optional<Submission> submission;
  int64_t num_unknown_fields = 0;
};

Answer::Answer(std::shared_ptr<Session> session, Endpoint endpoint)
    : context_(session->context()),
      session_(std::move(session)),
      endpoint_(endpoint),
      keep_alive_timer_(context_.io) {
  ++context_.num_answers;
}

Answer::~Answer() { --context_.num_answers; }

void Answer::Start(std::string body, Session::Headers headers) {
  start_ns_ = context_.clock.NowNs();
  auto self = shared_from_this();
  auto job = [self, body = std::move(body), headers = std::move(headers)] {
    auto outcome = std::make_shared<Outcome>();
    try {
      self->ParseAndSubmit(body, headers, outcome.get());
    } catch (const std::exception& error) {
      // Memory ran out, or a bug: this request fails, the others go on.
      LogError("event=request_failed request_id={} reason=\"{}\"", self->session_->request_id(),
               error.what());
      outcome->error = FromStatus(Internal("the request could not be processed"));
    }
    asio::post(self->context_.io, [self, outcome] { self->OnSubmitted(outcome); });
  };
  asio::post(context_.frontend, std::move(job));
}

void Answer::ParseAndSubmit(const std::string& body, const Session::Headers& headers,
                            Outcome* outcome) {
  auto parsed = ParseBody(endpoint_, body);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    outcome->error = std::move(*error);
    return;
  }
  auto budget = ParseBudgetHeaders(headers);
  if (auto* error = std::get_if<ApiError>(&budget)) {
    outcome->error = std::move(*error);
    return;
  }
  outcome->request = std::move(std::get<ParsedBody>(parsed).request);
  outcome->num_unknown_fields = std::get<ParsedBody>(parsed).num_unknown_fields;
  outcome->request.header_budget = std::move(std::get<BudgetFields>(budget));
  auto wake = [weak = weak_from_this(), &io = context_.io] {
    asio::post(io, [weak] {
      if (auto answer = weak.lock()) {
        answer->OnWake();
      }
    });
  };
  auto submitted = context_.serving->service.Submit(outcome->request, std::move(wake));
  if (auto* refused = std::get_if<ApiError>(&submitted)) {
    outcome->error = std::move(*refused);
  } else {
    outcome->submission = std::move(std::get<Submission>(submitted));
  }
}

void Answer::OnSubmitted(std::shared_ptr<Outcome> outcome) {
  context_.serving->metrics.CountUnknownFields(outcome->num_unknown_fields);
  if (outcome->error.has_value()) {
    if (!client_gone_) {
      session_->RespondError(*outcome->error);
    }
    return End();
  }
  submission_ = std::move(outcome->submission);
  if (client_gone_) {
    context_.serving->service.Cancel(*submission_);
    return End();
  }
  streaming_ = outcome->request.stream;
  choices_.resize(submission_->choices.size());
  answer_.endpoint = endpoint_;
  answer_.id = (endpoint_ == Endpoint::kChatCompletions ? "chatcmpl-" : "cmpl-") +
               session_->request_id().substr(4);
  answer_.model = context_.serving->runtime.model_name();
  answer_.created_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
  answer_.return_token_ids = outcome->request.return_token_ids;
  answer_.include_usage = outcome->request.include_usage;
  answer_.runtime = &context_.serving->runtime;
  answer_.submission = &*submission_;
  if (!streaming_) {
    return Pump();
  }
  writing_ = true;
  session_->BeginStream(BudgetHeaders(), [self = shared_from_this()] {
    self->writing_ = false;
    self->header_sent_ = true;
    self->ArmKeepAlive();
    self->Pump();
  });
}

// What will be applied, as the receipt will say it.
Session::Headers Answer::BudgetHeaders() const {
  const engine::KvPolicySpec& spec = submission_->budgets[0].spec;
  const auto num_tokens = static_cast<int64_t>(submission_->prompt_ids[0].size());
  return {{"x-kv-policy", spec.policy},
          {"x-kv-retention", RatioText(engine::AppliedRetentionPpm(spec, num_tokens))},
          {"x-tsp-ratio", RatioText(engine::AppliedTspPpm(spec, num_tokens))}};
}

void Answer::OnWake() {
  if (submission_.has_value() && session_ != nullptr) {
    Pump();
  }
}

// Moves events from the streams to the socket. While a write is under way events wait in their
// streams, where they are merged: a slow reader costs bounded memory.
void Answer::Pump() {
  if (writing_ || session_ == nullptr || (streaming_ && !header_sent_)) {
    return;
  }
  std::string sse = TakeEvents();
  if (failure_.has_value()) {
    return FailWith(*failure_);
  }
  if (sse.empty()) {
    return FinishIfDone();
  }
  writing_ = true;
  keep_alive_timer_.cancel();
  session_->WriteStream(sse, [self = shared_from_this()] {
    self->writing_ = false;
    self->ArmKeepAlive();
    self->Pump();
  });
}

std::string Answer::TakeEvents() {
  std::string sse;
  for (size_t index = 0; index < choices_.size() && !failure_.has_value(); ++index) {
    engine::EventStream& stream = *submission_->choices[index].stream;
    while (auto event = stream.TryNext()) {
      TakeEvent(index, *event, &sse);
      if (failure_.has_value()) {
        break;
      }
    }
  }
  return sse;
}

void Answer::TakeEvent(size_t index, const engine::RequestEvent& event, std::string* sse) {
  using Kind = engine::RequestEvent::Kind;
  switch (event.kind) {
    case Kind::kProgress:
      return;
    case Kind::kFailed:
      failure_ = FromStatus(event.status);
      return;
    case Kind::kCancelled:
      failure_ = ShuttingDown();
      return;
    case Kind::kTokens:
    case Kind::kFinished:
      break;
  }
  if (!event.tokens.empty()) {
    ObserveTokens();
  }
  if (streaming_) {
    for (const std::string& chunk : StreamChunks(answer_, index, event, &choices_[index])) {
      *sse += Sse(chunk);
    }
    if (event.kind == Kind::kFinished) {
      choices_[index].finished = true;
      choices_[index].terminal = event;
    }
  } else {
    Accumulate(event, &choices_[index]);
  }
}

void Answer::ObserveTokens() {
  const int64_t now = context_.clock.NowNs();
  if (last_token_ns_ == 0) {
    context_.serving->metrics.ObserveTimeToFirstToken(static_cast<double>(now - start_ns_) * 1e-9);
  } else {
    context_.serving->metrics.ObserveInterTokenLatency(static_cast<double>(now - last_token_ns_) * 1e-9);
  }
  last_token_ns_ = now;
}

void Answer::FinishIfDone() {
  for (const ChoiceState& choice : choices_) {
    if (!choice.finished) {
      return;
    }
  }
  context_.serving->metrics.ObserveEndToEnd(static_cast<double>(context_.clock.NowNs() - start_ns_) * 1e-9);
  if (!streaming_) {
    session_->Respond(200, "application/json", AnswerBody(answer_, choices_), BudgetHeaders());
    return End();
  }
  std::string tail;
  if (answer_.include_usage) {
    tail += Sse(UsageChunk(answer_, choices_));
  }
  tail += "data: [DONE]\n\n";
  writing_ = true;
  session_->WriteStream(tail, [self = shared_from_this()] {
    self->session_->EndStream(/*close=*/false);
    self->End();
  });
}

// One choice failed: the others are cancelled, the client gets a real status where none was sent
// yet, else one error event and a closed connection.
void Answer::FailWith(const ApiError& error) {
  context_.serving->service.Cancel(*submission_);
  if (!streaming_) {
    session_->RespondError(error);
    return End();
  }
  writing_ = true;
  session_->WriteStream(Sse(ErrorBody(error)), [self = shared_from_this()] {
    self->session_->EndStream(/*close=*/true);
    self->End();
  });
}

void Answer::ArmKeepAlive() {
  keep_alive_timer_.expires_after(std::chrono::milliseconds(context_.options.keep_alive_ms));
  keep_alive_timer_.async_wait([weak = weak_from_this()](boost::system::error_code error) {
    auto self = weak.lock();
    if (!error && self != nullptr) {
      self->OnKeepAlive();
    }
  });
}

void Answer::OnKeepAlive() {
  if (session_ == nullptr || writing_) {
    return;
  }
  writing_ = true;
  session_->WriteStream(": keep-alive\n\n", [self = shared_from_this()] {
    self->writing_ = false;
    self->ArmKeepAlive();
    self->Pump();
  });
}

void Answer::OnClientGone() {
  client_gone_ = true;
  if (submission_.has_value()) {
    context_.serving->service.Cancel(*submission_);
    End();
  }
}

void Answer::End() {
  keep_alive_timer_.cancel();
  session_.reset();
}

}  // namespace headroom::server

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "replay/distributions.hpp"
#include "replay/generator.hpp"
#include "replay/streams.hpp"

namespace kvstream {
namespace {

/// Questions of one kind about the first `documents` documents of a source, spread evenly.
struct Task {
  std::uint32_t documents, questions;
  std::uint32_t question_tokens, output_tokens;  ///< means, uniform within +-50 %
};
struct Source {
  std::uint32_t documents, mean_tokens;
  std::array<Task, 2> tasks;
};

// Documents, mean tokens and questions are LooGLE's published table. Lengths of questions and
// answers are the mean words of its published samples times 24,005 tokens / 19,367 words, and
// 32 tokens of instruction for each question; docs/traces.md has the sums. A summary's question is
// its instruction alone.
constexpr std::uint32_t kInstructionTokens = 32;
constexpr std::array<Source, 3> kSources{{
    {516, 20'887, {{{516, 516, 0, 250}, {0, 0, 0, 0}}}},
    {105, 21'017, {{{105, 1951, 12, 18}, {60, 459, 21, 20}}}},
    {155, 36'412, {{{155, 2880, 136, 5}, {85, 642, 21, 20}}}},
}};
constexpr double kLengthCv = 0.3;

/// Log-normal, then stretched so that the mean is the published one.
std::vector<std::uint32_t> lengths_of(const Source& source, Random& random) {
  const double sigma = std::sqrt(std::log1p(kLengthCv * kLengthCv));
  std::vector<double> drawn(source.documents);
  for (double& length : drawn) length = log_normal(random, 1.0, sigma);
  const double sum = std::accumulate(drawn.begin(), drawn.end(), 0.0);
  std::vector<std::uint32_t> lengths;
  lengths.reserve(drawn.size());
  for (const double length : drawn) {
    const double tokens = length * source.mean_tokens * source.documents / sum;
    lengths.push_back(std::max(1U, static_cast<std::uint32_t>(std::lround(tokens))));
  }
  return lengths;
}

struct Question {
  std::uint64_t document;
  std::uint32_t document_tokens;
  const Task* task;
};

void ask(std::vector<Question>& questions, std::uint64_t number, std::uint32_t in_source,
         std::uint32_t tokens, const Task& task) {
  if (in_source >= task.documents) return;
  const std::uint64_t from = std::uint64_t{in_source} * task.questions / task.documents;
  const std::uint64_t to = (std::uint64_t{in_source} + 1) * task.questions / task.documents;
  for (std::uint64_t i = from; i < to; ++i) questions.push_back({number, tokens, &task});
}

}  // namespace

Workload loogle_workload(const LoogleOptions& options) {
  Random random(options.seed);
  std::vector<Question> questions;
  std::uint64_t number = 0;
  for (const Source& source : kSources) {
    const auto lengths = lengths_of(source, random);
    for (std::uint32_t i = 0; i < source.documents; ++i, ++number) {
      for (const Task& task : source.tasks) ask(questions, number, i, lengths[i], task);
    }
  }
  if (options.order == DocumentOrder::kShuffled) random.shuffle(questions);

  const std::uint64_t documents_salt = mix64(options.seed) ^ stream_of("loogle documents");
  const std::uint64_t questions_salt = mix64(options.seed) ^ stream_of("loogle questions");
  Workload workload;
  workload.name = "loogle";
  workload.requests.reserve(questions.size());
  for (const Question& question : questions) {
    WorkloadRequest& request = workload.requests.emplace_back();
    const std::uint64_t index = workload.requests.size() - 1;
    const std::uint32_t asked = kInstructionTokens + around(random, question.task->question_tokens);
    request.input_tokens = question.document_tokens + asked;
    request.output_tokens = std::max(1U, around(random, question.task->output_tokens));
    request.conversation = index;
    request.prompt = {
        {fresh_stream(documents_salt, question.document), 0, question.document_tokens},
        {fresh_stream(questions_salt, index), 0, asked}};
  }
  return workload;
}

}  // namespace kvstream

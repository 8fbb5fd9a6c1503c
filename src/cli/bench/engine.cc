// ingot bench engine: requests arrive at random and run in the whole engine, as in a server. Measures throughput, time
// to the first token, time between tokens, prefix-cache hits and preemptions. With a grammar or speculation, loads with
// and without the feature alternate, and the difference is measured.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>
#include <mutex>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "base/system.h"
#include "cli/bench/model.h"
#include "cli/chat/generate.h"
#include "cli/options/grammar.h"
#include "cli/terminal/terminal.h"
#include "engine/speculate/modes.h"
#include "engine/speculate/oracle.h"
#include "text/json_value.h"

namespace ingot {
namespace {

struct LoadOptions {
  BenchSubject subject;
  int n_requests = 64, n_prompt = 256, n_output = 64, n_shared = 0, n_turns = 1;
  double rate = 0;  // requests a second; 0: all at once
  double spread = 0.5;
  int max_seqs = 32, max_batch_tokens = 0, n_kv_tokens = 0, seed = 1;
  bool no_prefix_cache = false, no_jump_ahead = false, json = false;
  GrammarOptions grammar;
  std::string speculate = "off";  // or another mode, oracle:P or oracle:P:N
  int n_pairs = 5;
};

// Draft tokens that are correct with probability p. n_fixed: drafts a step; 0: the engine decides.
struct Oracle {
  double p = -1;
  int n_fixed = 0;
};

// Parses "oracle:P" or "oracle:P:N"; returns nothing for other modes. Throws UsageError.
std::optional<Oracle> find_oracle(const std::string& speculate) {
  if (!speculate.starts_with("oracle:")) return std::nullopt;
  Oracle oracle;
  const char* end = speculate.data() + speculate.size();
  std::from_chars_result read = std::from_chars(speculate.data() + 7, end, oracle.p);
  const bool has_n = read.ec == std::errc() && read.ptr < end && *read.ptr == ':';
  if (has_n) read = std::from_chars(read.ptr + 1, end, oracle.n_fixed);
  const bool is_n = !has_n || (oracle.n_fixed >= 1 && oracle.n_fixed <= kMaxDrafts);
  if (read.ec != std::errc() || read.ptr != end || !(oracle.p >= 0 && oracle.p <= 1) || !is_n)
    throw UsageError(
        "--speculate oracle:P needs a probability from 0 to 1, such as oracle:0.8; oracle:P:N needs 1 to {} "
        "drafts, such as oracle:0.8:4",
        kMaxDrafts);
  return oracle;
}

// The source of draft tokens. The oracle uses the answers of an earlier load with the same prompts.
struct Speculation {
  std::string how = "off";
  std::vector<std::vector<int32_t>> answers;  // by request, in the order of sending
  DraftHeadKind head = DraftHeadKind::kNone;
  DraftModel* draft = nullptr;

  std::shared_ptr<Proposer> proposer(size_t request, size_t n_prompt, int n_vocab) const {
    if (const auto oracle = find_oracle(how))
      return std::make_shared<OracleProposer>(answers.at(request), n_prompt, n_vocab, oracle->p, request,
                                              oracle->n_fixed);
    return make_proposer(*find_speculate(how), head, draft);
  }
};

double ms(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

// Measurements of the requests' consumer. Tokens arrive on the engine's thread.
struct Observed {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<double> first_ms, between_ms;
  Clock::time_point last{};
  int64_t n_tokens = 0;
  int n_finished = 0, n_failed = 0;
  std::string first_error;
  std::vector<std::vector<int32_t>> answers;  // by request, in the order of sending
};

struct Client final : TokenSink {
  Client(Observed& all, size_t request) : observed(all), index(request) {}
  void on_token(const Sampled& token) override {
    const Clock::time_point now = Clock::now();
    const std::lock_guard lock(observed.mutex);
    (tokens.empty() ? observed.first_ms : observed.between_ms).push_back(ms(now - (tokens.empty() ? submitted : last)));
    last = observed.last = now;
    tokens.push_back(token.token);
    ++observed.n_tokens;
  }
  void on_finish(const Finish& finish) override {
    const std::lock_guard lock(observed.mutex);
    ++observed.n_finished;
    if (finish.reason == FinishReason::kError && ++observed.n_failed == 1) observed.first_error = finish.error;
    finished = true;
    observed.answers.resize(std::max(observed.answers.size(), index + 1));
    observed.answers[index] = tokens;
    observed.changed.notify_all();
  }

  Observed& observed;
  const size_t index;
  Clock::time_point submitted = Clock::now(), last{};
  std::vector<int32_t> tokens;
  bool finished = false;
};

// A conversation. The prompt of a turn is all earlier text plus new tokens.
struct Conversation {
  std::vector<int32_t> said;
  std::shared_ptr<Client> client;  // of the turn in flight
  int n_turns = 0;
};

class Load {
 public:
  Load(Engine& engine, const LoadOptions& o, std::shared_ptr<Constraint> constraint, const Speculation& speculation)
      : engine_(engine),
        o_(o),
        constraint_(std::move(constraint)),
        speculation_(speculation),
        random_(static_cast<unsigned>(o.seed)) {}

  void run(Observed& observed) {
    const int n_vocab = engine_.info().n_vocab;
    const std::vector<int32_t> shared = tokens(o_.n_shared, n_vocab);
    std::vector<Conversation> conversations((static_cast<size_t>(o_.n_requests) + o_.n_turns - 1) / o_.n_turns);
    for (Conversation& c : conversations) c.said = shared;
    Clock::time_point arrival = Clock::now();
    int n_sent = 0;
    while (n_sent < o_.n_requests) {
      if (InterruptGuard::interrupted()) throw Error("interrupted");
      Conversation* next = ready(conversations, observed);
      if (next == nullptr) continue;
      if (o_.rate > 0) {
        arrival += std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(std::exponential_distribution<double>(o_.rate)(random_)));
        std::this_thread::sleep_until(arrival);
      }
      send(*next, observed, n_vocab, static_cast<size_t>(n_sent));
      ++n_sent;
    }
    std::unique_lock lock(observed.mutex);
    while (!observed.changed.wait_for(lock, std::chrono::milliseconds(100),
                                      [&] { return observed.n_finished == o_.n_requests; }))
      if (InterruptGuard::interrupted()) throw Error("interrupted");
  }

 private:
  // Of the conversations without a turn in flight, the one with the fewest turns; null after a short wait.
  Conversation* ready(std::vector<Conversation>& all, Observed& observed) {
    Conversation* best = nullptr;
    const auto find = [&] {
      for (Conversation& c : all)
        if ((!c.client || c.client->finished) && c.n_turns < o_.n_turns &&
            (best == nullptr || c.n_turns < best->n_turns))
          best = &c;
      return best != nullptr;
    };
    std::unique_lock lock(observed.mutex);
    observed.changed.wait_for(lock, std::chrono::milliseconds(100), find);
    return best;
  }

  void send(Conversation& c, Observed& observed, int n_vocab, size_t index) {
    if (c.client) c.said.insert(c.said.end(), c.client->tokens.begin(), c.client->tokens.end());
    const std::vector<int32_t> news = tokens(around(o_.n_prompt), n_vocab);
    c.said.insert(c.said.end(), news.begin(), news.end());
    c.client = std::make_shared<Client>(observed, index);
    ++c.n_turns;
    Request request;
    request.prompt = c.said;
    request.sampling = {.temperature = 0};
    request.max_tokens = around(o_.n_output);
    request.sink = c.client;
    request.proposer = speculation_.proposer(index, request.prompt.size(), n_vocab);
    request.constraint = constraint_;
    if (constraint_) request.stop_tokens = constraint_->vocabulary().ends();
    engine_.submit(std::move(request));
  }

  int around(int mean) {
    return std::max(
        1, static_cast<int>(std::lround(mean * std::uniform_real_distribution(1 - o_.spread, 1 + o_.spread)(random_))));
  }
  std::vector<int32_t> tokens(int n, int n_vocab) {
    std::vector<int32_t> result(n);
    for (int32_t& token : result) token = static_cast<int32_t>(random_() % static_cast<unsigned>(n_vocab));
    return result;
  }

  Engine& engine_;
  const LoadOptions& o_;
  const std::shared_ptr<Constraint> constraint_;
  const Speculation& speculation_;
  std::mt19937 random_;
};

// Times of a step's parts on the stepping thread, in microseconds or, if the name says so, ms.
struct StepTimes {
  std::vector<double> plan_us, fill_us, emit_us, mask_us, step_ms;
  // Time between the ends of two consecutive steps that both decode one token for each of n_full sequences.
  std::vector<double> decode_ms;
  int n_full = 0;                 // number of sequences in a full step
  int64_t n_seqs = 0;
  bool was_full = false;
  Clock::time_point last{};
  void add(const StepStats& s) {
    plan_us.push_back(1e3 * ms(s.planned - s.begin));
    fill_us.push_back(1e3 * ms(s.filled - s.planned));
    emit_us.push_back(1e3 * ms(s.emitted - s.sampled));
    mask_us.push_back(1e3 * s.mask_ms);
    step_ms.push_back(ms(s.sampled - s.filled));
    n_seqs += s.n_seqs;
    const bool is_full = s.n_seqs == n_full && s.n_tokens == n_full;
    if (is_full && was_full) decode_ms.push_back(ms(s.emitted - last));
    was_full = is_full;
    last = s.emitted;
  }
};

// The measurements of one load, from the first request to the last answer.
struct EngineLoadRun {
  Observed observed;
  StepTimes steps;
  EngineGauges gauges;
  double seconds = 0;
  double cpu_seconds = 0;  // of all threads; on a busy machine more reliable than wall time
};

std::unique_ptr<EngineLoadRun> run_engine_load(Ranks& runner, const LoadOptions& o, const RunnerOptions& options,
                                               std::shared_ptr<Constraint> constraint,
                                               const Speculation& speculation = {}) {
  auto run = std::make_unique<EngineLoadRun>();
  run->steps.n_full = o.max_seqs;
  EngineOptions engine_options{.chunk = options.max_batch_tokens, .prefix_cache = !o.no_prefix_cache};
  engine_options.jump_ahead = !o.no_jump_ahead;
  engine_options.draft_head = speculation.how != "off";
  engine_options.on_step = [&](const StepStats& s) {
    run->steps.add(s);
    if (options.trace) trace_step(*options.trace, s);
  };
  GivenAnswers given(runner);  // for the oracle
  Engine engine(find_oracle(o.speculate) ? static_cast<Runner&>(given) : runner, engine_options);
  engine.start();
  const Clock::time_point start = Clock::now();
  const std::clock_t cpu_start = std::clock();
  Load(engine, o, std::move(constraint), speculation).run(run->observed);
  run->seconds = ms(Clock::now() - start) / 1e3;
  run->cpu_seconds = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  engine.stop();
  run->gauges = engine.gauges();
  return run;
}

JsonValue percentiles(std::vector<double>& values) {
  return {{"p50", percentile(values, 0.5)},
          {"p90", percentile(values, 0.9)},
          {"p99", percentile(values, 0.99)},
          {"max", percentile(values, 1)}};
}

JsonValue result_of(EngineLoadRun& run) {
  Observed& seen = run.observed;
  StepTimes& steps = run.steps;
  const EngineGauges& g = run.gauges;
  const auto share = [](int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  };
  return {{"seconds", run.seconds},
          {"cpu_seconds", run.cpu_seconds},
          {"output_tok_s", static_cast<double>(seen.n_tokens) / run.seconds},
          {"total_tok_s", static_cast<double>(g.n_prompt_tokens + seen.n_tokens) / run.seconds},
          {"requests", seen.n_finished},
          {"failed", seen.n_failed},
          {"first_error", seen.first_error},
          {"prompt_tokens", g.n_prompt_tokens},
          {"cached_tokens", g.n_cached_tokens},
          {"hit_rate", share(g.n_cached_tokens, g.n_prompt_tokens)},
          {"output_tokens", seen.n_tokens},
          {"forced_tokens", g.n_forced_tokens},
          {"draft_tokens", g.n_draft_tokens},
          {"accepted_tokens", g.n_accepted_tokens},
          {"computed_tokens", g.n_computed_tokens},
          {"preemptions", g.n_preemptions},
          {"steps", g.n_steps},
          {"sequences_a_step", share(steps.n_seqs, g.n_steps)},
          {"ttft_ms", percentiles(seen.first_ms)},
          {"itl_ms", percentiles(seen.between_ms)},
          {"step_ms", percentiles(steps.step_ms)},
          {"decode_ms", percentiles(steps.decode_ms)},
          {"mask_us", percentiles(steps.mask_us)},
          {"plan_us", percentiles(steps.plan_us)},
          {"fill_us", percentiles(steps.fill_us)},
          {"emit_us", percentiles(steps.emit_us)}};
}

void print(const JsonValue& r) {
  const auto number = [&](const char* name) { return r[name].get<double>(); };
  fmt::print("throughput   {:.1f} tok/s written, {:.1f} tok/s with the prompts; {} requests in {:.1f} s, {} failed\n",
             number("output_tok_s"), number("total_tok_s"), r["requests"].get<int>(), number("seconds"),
             r["failed"].get<int>());
  if (r["failed"].get<int>() > 0) fmt::print("first error  {}\n", r["first_error"].get<std::string>());
  fmt::print("prompts      {:.0f} tokens, {:.1f} % of them from the prefix cache\n", number("prompt_tokens"),
             100 * number("hit_rate"));
  fmt::print("steps        {:.0f}, of {:.1f} sequences; {:.0f} preemptions\n\n", number("steps"),
             number("sequences_a_step"), number("preemptions"));
  fmt::print(
      "|                |      p50 |      p90 |      p99 |      max "
      "|\n|----------------|----------|----------|----------|----------|\n");
  for (const auto& [label, key] : {std::pair{"first token ms", "ttft_ms"},
                                   {"next token ms", "itl_ms"},
                                   {"step ms", "step_ms"},
                                   {"plan us", "plan_us"},
                                   {"fill us", "fill_us"},
                                   {"emit us", "emit_us"}}) {
    fmt::print("| {:14} |", label);
    for (const char* p : {"p50", "p90", "p99", "max"}) fmt::print(" {:8.2f} |", r[key][p].get<double>());
    fmt::print("\n");
  }
}

// The two sides of a comparison: their names, and the function that runs the second side.
struct Sides {
  const char *without, *with;
  std::function<std::unique_ptr<EngineLoadRun>(const EngineLoadRun& without)> run_with;
};

// Compares free with constrained answers, or no speculation with speculation.
Sides sides_of(Ranks& runner, const LoadOptions& o, const RunnerOptions& options,
               const std::shared_ptr<Constraint>& constraint, DraftModel* draft) {
  if (constraint)
    return {"free", "constrained",
            [&, constraint](const EngineLoadRun&) { return run_engine_load(runner, o, options, constraint); }};
  return {"off", "speculating", [&, draft](const EngineLoadRun& without) {
            return run_engine_load(runner, o, options, nullptr,
                                   {o.speculate, without.observed.answers, runner.info().draft_head, draft});
          }};
}

// Alternates loads without and with the feature, so other work on the machine affects both alike.
JsonValue compare(Ranks& runner, const LoadOptions& o, const RunnerOptions& options, const Sides& sides) {
  JsonValue result = {{sides.without, JsonValue::array()}, {sides.with, JsonValue::array()}};
  std::vector<double> step_ratios, rate_ratios, cpu_ratios;
  for (int i = 0; i < o.n_pairs; ++i) {
    const std::unique_ptr<EngineLoadRun> first = run_engine_load(runner, o, options, nullptr);
    const JsonValue free = result_of(*first), bound = result_of(*sides.run_with(*first));
    const double free_ms = free["decode_ms"]["p50"], bound_ms = bound["decode_ms"]["p50"];
    if (free_ms > 0 && bound_ms > 0) step_ratios.push_back(bound_ms / free_ms);
    cpu_ratios.push_back(bound["cpu_seconds"].get<double>() / free["cpu_seconds"].get<double>());
    rate_ratios.push_back(bound["output_tok_s"].get<double>() / free["output_tok_s"].get<double>());
    result[sides.without].push_back(free);
    result[sides.with].push_back(bound);
  }
  result["decode_step_ratio"] = percentile(step_ratios, 0.5);
  result["output_tok_s_ratio"] = percentile(rate_ratios, 0.5);
  result["cpu_seconds_ratio"] = percentile(cpu_ratios, 0.5);
  return result;
}

void print_comparison(const JsonValue& r, const Sides& sides) {
  fmt::print(
      "|             | output tok/s |    steps | forced tokens |   drafts | accepted | decode step ms | mask us: p50 |"
      "      p99 |\n"
      "|-------------|--------------|----------|---------------|----------|----------|----------------|--------------|"
      "----------|\n");
  for (size_t i = 0; i < r[sides.with].size(); ++i)
    for (const char* kind : {sides.without, sides.with}) {
      const auto& one = r[kind][i];
      const auto number = [&](const char* of, const char* p) { return one[of][p].get<double>(); };
      fmt::print("| {:11} | {:12.1f} | {:8} | {:13} | {:8} | {:8} | {:14.3f} | {:12.1f} | {:8.1f} |\n", kind,
                 one["output_tok_s"].get<double>(), one["steps"].get<int64_t>(), one["forced_tokens"].get<int64_t>(),
                 one["draft_tokens"].get<int64_t>(), one["accepted_tokens"].get<int64_t>(), number("decode_ms", "p50"),
                 number("mask_us", "p50"), number("mask_us", "p99"));
    }
  fmt::print("\n{} / {}, median of {} pairs: decode step {:.4f}, output tok/s {:.4f}, CPU time {:.4f}\n", sides.with,
             sides.without, r[sides.with].size(), r["decode_step_ratio"].get<double>(),
             r["output_tok_s_ratio"].get<double>(), r["cpu_seconds_ratio"].get<double>());
}

// The grammar of the answers, compiled for the model's tokens. The constraint is null without a grammar.
struct BenchGrammar {
  explicit BenchGrammar(const LoadOptions& o) {
    const std::optional<GrammarText> grammar = grammar_text(o.grammar);
    if (!grammar) return;
    if (!o.subject.shape.empty()) throw UsageError("a grammar needs a model's tokens: give a MODEL, not --shape");
    const auto checkpoint = open_model_file(o.subject.model);
    tokenizer = checkpoint->tokenizer();
    constraint = std::make_shared<Constraint>(compile_option(*grammar),
                                              make_grammar_vocabulary(*tokenizer, checkpoint->config().n_vocab));
  }
  std::unique_ptr<Tokenizer> tokenizer;
  std::shared_ptr<Constraint> constraint;
};

void bench_engine(LoadOptions& o) {
  InterruptGuard guard;
  const bool speculates = o.speculate != "off";
  const auto mode = find_speculate(o.speculate);
  if (!find_oracle(o.speculate) && !mode)
    throw UsageError("--speculate {}: it must be {} or oracle:P or oracle:P:N", printable(o.speculate),
                     fmt::join(kSpeculateNames, ", "));
  o.subject.model.speculate = mode.value_or(Speculate::kOff);
  const BenchGrammar grammar(o);
  if (speculates && grammar.constraint)
    throw UsageError("--speculate cannot be combined with a grammar: give only one of them");
  const auto draft_file = open_draft_file(o.subject.model);
  RunnerOptions options = runner_options(o.subject.model);
  choose_draft_head(o.subject.model.speculate, draft_file, options);
  const int turn = static_cast<int>(std::ceil((1 + o.spread) * (o.n_prompt + o.n_output)));
  const int64_t longest = o.n_shared + int64_t{o.n_turns} * turn + 1;
  if (longest > 1 << 24)
    throw UsageError("a conversation may grow to {} tokens, which is too long: use fewer or shorter turns", longest);
  // Each sequence needs whole blocks and one block more; with fewer blocks, the scheduler delays the last sequences.
  const int64_t block = options.block_size;
  options.n_ctx = static_cast<int>(((longest + block - 1) / block + 1) * block);
  options.max_seqs = o.max_seqs;
  if (speculates) options.max_logits = o.max_seqs + std::max(kMaxDrafts, 4 * o.max_seqs);
  options.n_snapshots = o.no_prefix_cache ? 0 : -1;
  options.max_batch_tokens = o.max_batch_tokens > 0 ? std::max(o.max_batch_tokens, o.max_seqs) : 0;
  // Without a number, the cache is as large as fits beside the model, so no part of the model moves to the CPU.
  if (o.n_kv_tokens > 0) options.n_kv_tokens = static_cast<int>(std::max<int64_t>(o.n_kv_tokens, longest));
  const std::shared_ptr<DraftModel> draft = load_draft(draft_file, options, o.subject.model.draft_device);
  const std::unique_ptr<Ranks> runner = load_bench_runner(o.subject, options);
  { Engine(*runner, {}).warm_up(); }
  const Sides sides = sides_of(*runner, o, options, grammar.constraint, draft.get());
  const bool compares = grammar.constraint || speculates;
  const JsonValue result = compares ? compare(*runner, o, options, sides)
                                              : result_of(*run_engine_load(*runner, o, options, nullptr));
  if (o.json) {
    fmt::print("{}\n", result.dump(2));
    return;
  }
  fmt::print("{}; {}; at most {} sequences and {} tokens in a step, {} tokens of KV cache\n\n",
             bench_name(*runner, o.subject), runner->description(), o.max_seqs,
             runner->info().max_batch_tokens, int64_t{runner->info().pools[0].n_blocks} * runner->info().block_size);
  if (compares) return print_comparison(result, sides);
  print(result);
}

}  // namespace

void add_bench_engine(CLI::App& bench) {
  auto o = std::make_shared<LoadOptions>();
  CLI::App* command =
      bench.add_subcommand("engine", "Measure the whole engine with requests that arrive at random times");
  add_bench_subject(*command, o->subject);
  const auto number = [&](const char* names, auto& value, const char* text, auto min_value, auto max_value) {
    command->add_option(names, value, text)->check(CLI::Range(min_value, max_value))->capture_default_str();
  };
  number("--requests", o->n_requests, "number of requests", 1, 1 << 24);
  number("--rate", o->rate, "requests per second on average, at random times; 0: all at once", 0.0, 1e6);
  number("-p,--prompt", o->n_prompt, "new tokens in a prompt, on average", 1, 1 << 20);
  number("-n,--output", o->n_output, "tokens in an answer, on average", 1, 1 << 20);
  number("--spread", o->spread, "variation of prompt and answer lengths; 0.5: from 0.5 to 1.5 times the average", 0.0,
         1.0);
  number("--turns", o->n_turns, "turns in a conversation; each prompt is the conversation so far and new tokens", 1,
         1000);
  number("--shared", o->n_shared, "number of tokens that all prompts begin with", 0, 1 << 20);
  number("--max-seqs", o->max_seqs, "maximum number of sequences in one step", 1, 4096);
  number("-b,--max-batch-tokens", o->max_batch_tokens,
         "maximum tokens per step; 0: 512 on the CPU, up to 2,048 on a GPU", 0, 1 << 16);
  number("--kv-tokens", o->n_kv_tokens,
         "size of the KV cache in tokens; 0: enough for all sequences, or as much as fits", 0, 1 << 30);
  number("--seed", o->seed, "seed of the random arrival times, lengths and tokens", 0, 0x7fffffff);
  number("-t,--threads", o->subject.model.n_threads, "number of threads; 0: all cores", 0, 1024);
  command->add_flag("--no-prefix-cache", o->no_prefix_cache, "compute every prompt in full, without the prefix cache");
  add_grammar_options(*command, o->grammar);
  number("--pairs", o->n_pairs, "number of paired runs, without and with the grammar or --speculate", 1, 1000);
  command
      ->add_option("--speculate", o->speculate,
                   "speculation to measure: off, a mode as in `ingot run`, or oracle:P, which drafts known answers "
                   "with probability P for each token, such as oracle:0.8; oracle:0.8:4: always 4 drafts")
      ->capture_default_str();
  command->add_option("--draft", o->subject.model.draft, "draft model or EAGLE-3 head, as in `ingot run`");
  command->add_option("--draft-device", o->subject.model.draft_device, "device of the draft model, as in `ingot run`");
  command->add_flag("--no-jump-ahead", o->no_jump_ahead,
                    "sample each token of text that the grammar forces, instead of appending it without sampling");
  command->add_flag("--json", o->json, "print JSON");
  command->footer(
      "Examples:\n  ingot bench engine model.gguf --requests 200 --rate 10\n"
      "  ingot bench engine --shape llama-3.2-1b --turns 5 --shared 200 --max-seqs 16\n"
      "  ingot bench engine model.gguf --requests 16 --max-seqs 16 --spread 0 --regex '[a-z ]{2000}'");
  command->callback([o] { bench_engine(*o); });
}

}  // namespace ingot

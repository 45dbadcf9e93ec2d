// SPDX-License-Identifier: Apache-2.0
// A character-level GPT on any text, trained inside a memory budget:
//
//   build/bin/train_gpt --budget 256MiB                     # on this project's own documents
//   build/bin/train_gpt book.txt --width 384 --seq 256 --budget 1GiB --checkpoint book.pt
//
// The whole step is one function: forward, backward, AdamW. `--plain` calls it as it is, without
// the library; the losses are the same to the last bit. With --checkpoint a run that ended goes on, also one that was
// interrupted (Ctrl-C: it ends after the step), or killed (from its last --checkpoint-every).
#include <signal.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "remat/models/gpt.h"
#include "remat/remat.h"

namespace {

constexpr int64_t kCharacters = 256;  // a character is a byte, so that any file will do
constexpr int64_t kHeadWidth = 32;
constexpr int kInterrupted = 130;  // the exit code, as of a program that the shell interrupts

volatile sig_atomic_t interrupted = 0;

// The step that runs is ended; a second time the process is.
void end_after_this_step() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

struct Arguments {
  std::string text;  // none: the documents
  std::string budget = "256MiB";
  int64_t steps = 300;
  int64_t batch = 32;
  int64_t sequence = 128;
  int64_t width = 256;
  int64_t layers = 6;
  double rate = 1e-3;
  int64_t seed = 1;
  int64_t print_every = 10;
  int64_t sample = 400;
  std::string checkpoint;
  int64_t checkpoint_every = 0;  // 0: in the end only
  std::string losses;
  bool plain = false;

  // Runs that may not continue each other differ here.
  std::string program() const {
    std::ostringstream out;
    out << "width " << width << ", layers " << layers << ", seq " << sequence << ", batch " << batch
        << ", seed " << seed;
    return out.str();
  }
};

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw remat::Error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// README.md, ARCHITECTURE.md and docs/ of the source tree that this program was built from.
std::string read_documents() {
  const std::filesystem::path root = REMAT_SOURCE_DIR;
  std::vector<std::filesystem::path> paths = {root / "README.md", root / "ARCHITECTURE.md"};
  for (const auto& entry : std::filesystem::directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const auto& path : paths) text += read_text(path) + "\n";
  return text;
}

at::Tensor as_tensor(const std::string& text) {
  at::Tensor bytes = torch::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), bytes.data_ptr<uint8_t>());
  return bytes;
}

// Windows of the text and what comes next in them. Which ones depends on the step alone, so that a
// run that goes on draws what it would have drawn.
remat::Batch draw_batch(const at::Tensor& text, int64_t step, const Arguments& arguments) {
  at::Generator generator = at::detail::createCPUGenerator(
      static_cast<uint64_t>(arguments.seed) * 1'000'003 + static_cast<uint64_t>(step));
  const int64_t length = arguments.sequence;
  const at::Tensor starts = at::randint(0, text.numel() - length, {arguments.batch}, generator,
                                        at::TensorOptions(at::kLong));
  const at::Tensor windows = text.unfold(0, length + 1, 1).index_select(0, starts).to(at::kLong);
  return {windows.narrow(1, 0, length).contiguous(), windows.narrow(1, 1, length).contiguous()};
}

// Everything that a checkpoint holds.
struct Training {
  explicit Training(const Arguments& arguments)
      : model(remat::models::GptOptions{.vocabulary = kCharacters,
                                        .context = arguments.sequence,
                                        .layers = arguments.layers,
                                        .heads = arguments.width / kHeadWidth,
                                        .width = arguments.width,
                                        .dropout = 0.1,
                                        .attention_dropout = 0}),
        optimizer(model->parameters(), torch::optim::AdamWOptions(arguments.rate)),
        program(arguments.program()) {}

  // Gradients are dropped at the end, not at the beginning: each then dies where it is applied, and
  // their memory is free for something else.
  remat::Batch step(const remat::Batch& batch) {
    const at::Tensor logits = model->forward(batch[0]);
    const at::Tensor loss =
        torch::nn::functional::cross_entropy(logits.view({-1, kCharacters}), batch[1].view(-1));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return {loss.detach()};
  }

  // All or nothing: the file that was there is replaced by a complete one.
  void save(const std::string& path) {
    torch::serialize::OutputArchive archive, model_part, optimizer_part;
    model->save(model_part);
    optimizer.save(optimizer_part);
    archive.write("model", model_part);
    archive.write("optimizer", optimizer_part);
    archive.write("generator", at::detail::getDefaultCPUGenerator().get_state());
    archive.write("steps", c10::IValue(steps));
    archive.write("program", c10::IValue(program));
    archive.save_to(path + ".part");
    std::filesystem::rename(path + ".part", path);
  }

  void load(const std::string& path) {
    torch::serialize::InputArchive archive, model_part, optimizer_part;
    archive.load_from(path);
    c10::IValue found;
    archive.read("program", found);
    if (found.toStringRef() != program) {
      throw remat::Error(path + " was made with " + found.toStringRef() + "; expected " + program);
    }
    archive.read("model", model_part);
    archive.read("optimizer", optimizer_part);
    model->load(model_part);
    optimizer.load(optimizer_part);
    at::Tensor state;
    archive.read("generator", state);
    at::Generator(at::detail::getDefaultCPUGenerator()).set_state(state);
    archive.read("steps", found);
    steps = found.toInt();
  }

  remat::models::Gpt model;
  torch::optim::AdamW optimizer;
  std::string program;
  int64_t steps = 0;  // done
};

// The model's own words, from a generator of its own.
std::string sample(Training& training, const Arguments& arguments) {
  const at::NoGradGuard no_gradients;
  training.model->eval();
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(arguments.seed));
  at::Tensor text = as_tensor("\n").to(at::kLong).view({1, 1});
  for (int64_t i = 0; i < arguments.sample; ++i) {
    const at::Tensor last = text.narrow(1, std::max<int64_t>(0, text.size(1) - arguments.sequence),
                                        std::min(text.size(1), arguments.sequence));
    const at::Tensor odds = training.model->forward(last).select(1, last.size(1) - 1).softmax(-1);
    text = at::cat({text, odds.multinomial(1, false, generator)}, 1);
  }
  training.model->train();
  std::string words;
  for (int64_t i = 1; i < text.size(1); ++i) words += static_cast<char>(text[0][i].item<int64_t>());
  return words;
}

// None as long as nothing has been planned: the first call makes the optimizer's state.
std::optional<remat::StepReport> report_of(const remat::Step& step) {
  try {
    return step.report();
  } catch (const remat::Error&) {
    return std::nullopt;
  }
}

// Every loss, exactly, a line each. A run that goes on keeps those of the steps before it.
class LossFile {
 public:
  LossFile(const std::string& path, int64_t steps) : path_(path) {
    if (path.empty()) return;
    std::vector<std::string> before;
    if (std::ifstream file(path); steps > 0 && file) {
      for (std::string line; static_cast<int64_t>(before.size()) < steps && std::getline(file, line);) {
        before.push_back(line);
      }
    }
    if (!before.empty() && static_cast<int64_t>(before.size()) < steps) {
      throw remat::Error(remat::detail::concat(path, " has the losses of ", before.size(),
                                               " steps; expected those of the ", steps, " before, or another file"));
    }
    file_.open(path);
    for (const std::string& line : before) file_ << line << "\n";
    check();
  }
  void add(double loss) {
    if (path_.empty()) return;
    file_ << std::hexfloat << loss << std::endl;  // at once: the process may be ended
    check();
  }

 private:
  void check() {
    if (!file_) throw remat::Error("cannot write " + path_ + ": " + std::strerror(errno));
  }
  std::string path_;
  std::ofstream file_;
};

class Progress {
 public:
  void print(int64_t steps, double loss, int64_t tokens_per_step, const remat::Step* step) {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - since_).count();
    const auto report = step != nullptr ? report_of(*step) : std::nullopt;
    const std::string peak =
        report ? ", peak " + remat::format_bytes(report->measured_peak_bytes) : std::string();
    std::printf("step %5lld: loss %.4f, %.0f tokens/s%s\n", static_cast<long long>(steps), loss,
                static_cast<double>((steps - steps_) * tokens_per_step) / seconds, peak.c_str());
    std::fflush(stdout);
    begin(steps);
  }
  void begin(int64_t steps) {
    since_ = std::chrono::steady_clock::now();
    steps_ = steps;
  }

 private:
  std::chrono::steady_clock::time_point since_;
  int64_t steps_ = 0;
};

// What the calls do that are not planned yet, for those who watch: a line for each tenth of a stage; for so many ops
// while nobody knows how many there are.
class FirstCalls {
 public:
  void operator()(const remat::StepProgress& progress) {
    constexpr int64_t kOpsInALine = 100;
    if (isatty(STDERR_FILENO) == 0) return;
    const int64_t part = progress.ops_total > 0 ? 10 * progress.ops_done / progress.ops_total
                                                : progress.ops_done / kOpsInALine;
    if (progress.stage == stage_ && part == part_) return;
    stage_ = progress.stage;
    part_ = part;
    constexpr const char* kNames[] = {"recording", "measuring", "planning", "comparing"};
    std::fprintf(stderr, "%s", kNames[static_cast<size_t>(progress.stage)]);
    if (progress.ops_done > 0) {
      const std::string all = progress.ops_total > 0 ? " of " + std::to_string(progress.ops_total) : "";
      std::fprintf(stderr, " %lld%s ops, %s in a file", static_cast<long long>(progress.ops_done), all.c_str(),
                   remat::format_bytes(progress.spilled_bytes).c_str());
    }
    std::fputc('\n', stderr);
  }

 private:
  std::optional<remat::StepProgress::Stage> stage_;
  int64_t part_ = 0;
};

void print_memory(const remat::Step* step) {
  if (const auto report = step != nullptr ? report_of(*step) : std::nullopt) {
    std::printf("everything kept %s, budget %s, reserved %s, peak %s\n",
                remat::format_bytes(report->keep_all_peak_bytes).c_str(),
                remat::format_bytes(report->budget_bytes).c_str(),
                remat::format_bytes(report->peak_bytes).c_str(),
                remat::format_bytes(report->measured_peak_bytes).c_str());
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("resident set at most %s\n",
              remat::format_bytes(usage.ru_maxrss * remat::KiB).c_str());
}

// Bytes, a share of what the plain step needs, or what memory is left.
void set_budget(const std::string& text, remat::StepOptions& options) {
  if (text == "auto") {
    options.budget_of = remat::available_memory();
  } else if (text.ends_with('%')) {
    constexpr int64_t kWhole = 1'000'000'000'000;
    options.budget_of = remat::share_of_plain_peak(static_cast<double>(remat::parse_budget(text, kWhole)) / kWhole);
  } else {
    options.budget_bytes = remat::parse_budget(text, 0);
  }
}

// Returns the exit code.
int train(const Arguments& arguments) {
  torch::manual_seed(static_cast<uint64_t>(arguments.seed));
  const at::Tensor text =
      as_tensor(arguments.text.empty() ? read_documents() : read_text(arguments.text));
  if (text.numel() <= arguments.sequence + 1) {
    throw remat::Error("the text is shorter than a sequence; expected a longer one, or --seq");
  }
  Training training(arguments);
  if (!arguments.checkpoint.empty() && std::filesystem::exists(arguments.checkpoint)) {
    training.load(arguments.checkpoint);
    std::printf("%s: going on after step %lld\n", arguments.checkpoint.c_str(),
                static_cast<long long>(training.steps));
  }
  LossFile losses(arguments.losses, training.steps);

  const remat::StepFunction whole_step = [&](const remat::Batch& batch) {
    return training.step(batch);
  };
  std::unique_ptr<remat::Step> step;
  if (!arguments.plain) {
    remat::StepOptions options;
    set_budget(arguments.budget, options);
    options.notice = [](const std::string& what) { std::puts(what.c_str()); };
    options.progress = FirstCalls();
    step = std::make_unique<remat::Step>(whole_step, std::move(options));
  }
  Progress progress;
  progress.begin(training.steps);
  end_after_this_step();
  while (training.steps < arguments.steps && interrupted == 0) {
    const remat::Batch batch = draw_batch(text, training.steps, arguments);
    const remat::Batch result = step != nullptr ? (*step)(batch) : whole_step(batch);
    const double loss = result[0].item<double>();
    ++training.steps;
    losses.add(loss);
    if (training.steps % arguments.print_every == 0 || training.steps == arguments.steps) {
      progress.print(training.steps, loss, batch[0].numel(), step.get());
    }
    if (!arguments.checkpoint.empty() && arguments.checkpoint_every > 0 &&
        training.steps % arguments.checkpoint_every == 0) {
      training.save(arguments.checkpoint);
    }
  }
  print_memory(step.get());
  if (!arguments.checkpoint.empty()) training.save(arguments.checkpoint);
  if (training.steps < arguments.steps) {
    std::printf("interrupted after step %lld\n", static_cast<long long>(training.steps));
    return kInterrupted;
  }
  if (arguments.sample > 0) std::printf("\n%s\n", sample(training, arguments).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Trains a character-level GPT inside a memory budget");
  app.option_defaults()->take_last();
  const auto number = [&](const char* flag, int64_t& value, const char* what) {
    app.add_option(flag, value, what)->check(CLI::Range(1, 1'000'000'000))->capture_default_str();
  };
  app.add_option("text", arguments.text, "A text file; by default this project's documents")
      ->check(CLI::ExistingFile);
  app.add_option("--budget", arguments.budget, "Bytes with a unit, for all that a step needs; 50%: of what the plain step needs; auto: what memory is left")
      ->capture_default_str();
  number("--steps", arguments.steps, "In all, those of a checkpoint included");
  number("--batch", arguments.batch, "Sequences in a batch");
  number("--seq", arguments.sequence, "Characters in a sequence");
  number("--width", arguments.width, "Of every layer: a multiple of 32");
  number("--layers", arguments.layers, "Transformer layers");
  number("--seed", arguments.seed, "Of parameters, dropout and batches");
  number("--print-every", arguments.print_every, "Steps from line to line");
  app.add_option("--rate", arguments.rate, "Learning rate")->capture_default_str();
  app.add_option("--sample", arguments.sample, "Characters to write in the end")
      ->capture_default_str();
  app.add_option("--checkpoint", arguments.checkpoint,
                 "A file to go on from, if it is there, and to write in the end, or when interrupted");
  number("--checkpoint-every", arguments.checkpoint_every, "Steps from checkpoint to checkpoint; else in the end only");
  app.add_option("--losses", arguments.losses,
                 "A file for every loss, exactly: one hexadecimal number a line; a run that goes on adds to it");
  app.add_flag("--plain", arguments.plain, "The same without the library and without a budget");
  CLI11_PARSE(app, argc, argv);
  try {
    if (arguments.width % kHeadWidth != 0) throw remat::Error("--width: expected a multiple of 32");
    return train(arguments);
  } catch (const remat::Infeasible& error) {
    std::fprintf(stderr, "train_gpt: %s\n", error.what());
    return 3;
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "train_gpt: %s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_gpt: %s\n", error.what());
  }
  return 1;
}

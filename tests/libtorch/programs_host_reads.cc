// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <sstream>

#include "tests/libtorch/programs.h"

// Values of the step that its function reads on the host and goes on with.
namespace remat::testing {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;
using at::Tensor;

// A loss that also logs.
using LoggingLoss =
    std::function<Tensor(const Classifier&, const Batch&, std::vector<double>& log)>;

Program logging(LoggingLoss loss_of) {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=, log = program.log](const Batch& batch) {
    return classifier.update(loss_of(classifier, batch, *log));
  };
  return program;
}

Program item_in_forward_with_a_branch() {
  Program program = logging([](const Classifier& classifier, const Batch& batch, auto& log) {
    const Tensor logits = classifier.net->forward(batch[0]);
    const double mean = logits.mean().item<double>();
    log.push_back(mean);
    return F::cross_entropy(batch[0].sum().item<float>() > 0 ? logits * (1 + mean) : logits.exp(),
                            batch[1]);
  });
  program.batches = make_batches(10);
  return program;
}

Program loss_item_logged() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=, log = program.log](const Batch& batch) {
    const Tensor loss = classifier.loss(batch);
    const Batch results = classifier.update(loss);
    log->push_back(loss.item<double>());
    return results;
  };
  return program;
}

Program loss_read_between_forward_and_backward() {
  return logging([](const Classifier& classifier, const Batch& batch, auto& log) {
    const Tensor loss = classifier.loss(batch);
    log.push_back(*loss.const_data_ptr<float>());
    log.push_back(*loss.data_ptr<float>());
    return loss;
  });
}

Program activation_read_through_an_accessor() {
  return logging([](const Classifier& classifier, const Batch& batch, auto& log) {
    const Tensor logits = classifier.net->forward(batch[0]);
    const Tensor detached = logits.detach();
    log.push_back(detached.accessor<float, 2>()[1][2]);
    log.push_back(logits.data_ptr<float>()[3]);
    log.push_back(logits.const_data_ptr<float>()[5]);
    log.push_back(static_cast<const float*>(logits.storage().data())[7]);
    return F::cross_entropy(logits * (1 + log.back()), batch[1]);
  });
}

Program gradient_read_after_backward() {
  const Classifier classifier;
  Program program = classifier.program();
  program.batches = make_batches(10);
  program.step = [=, log = program.log](const Batch& batch) {
    classifier.optimizer->zero_grad();
    const Tensor loss = classifier.loss(batch);
    loss.backward();
    for (const Tensor& parameter : classifier.net->parameters()) {
      log->push_back(parameter.grad().abs().max().item<double>());
    }
    log->push_back(classifier.net->parameters()[0].grad().const_data_ptr<float>()[0]);
    log->push_back(classifier.net->parameters()[4].grad().accessor<float, 2>()[1][2]);
    classifier.optimizer->step();
    log->push_back(classifier.net->parameters()[0].const_data_ptr<float>()[0]);
    return Batch{loss};
  };
  return program;
}

// Between activations the host writes.
Program activation_written_through_a_pointer() {
  return logging([](const Classifier& classifier, const Batch& batch, auto& log) {
    const Tensor logits = classifier.net->forward(batch[0]);
    Tensor target = logits.detach().softmax(1);
    float* const bytes = target.data_ptr<float>();
    for (int64_t i = 0; i < kRows; i += 4) {
      bytes[i * kClasses] = static_cast<float>(log.size());
    }
    log.push_back(bytes[1]);
    return (logits - target).square().mean();
  });
}

Program weight_changed_through_its_pointer() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=](const Batch& batch) {
    const Batch results = classifier.update(classifier.loss(batch));
    float* const weight = classifier.net->parameters()[0].data_ptr<float>();
    weight[0] = weight[1] * 0.5f;
    return results;
  };
  return program;
}

Program equal_decides() {
  Program program = logging([](const Classifier& classifier, const Batch& batch, auto& log) {
    const bool same = torch::equal(batch[0], batch[2]);
    log.push_back(same);
    const Tensor logits = classifier.net->forward(batch[0]);
    return F::cross_entropy(same ? logits : logits + classifier.net->forward(batch[2]), batch[1]);
  });
  program.batches = make_batches(9);
  for (size_t i = 0; i < program.batches.size(); ++i) {
    Batch& batch = program.batches[i];
    batch.push_back(i % 2 == 0 ? batch[0].clone() : torch::randn_like(batch[0]));
  }
  return program;
}

Program is_nonzero_decides() {
  Program program = logging([](const Classifier& classifier, const Batch& batch, auto& log) {
    const bool large = batch[0].gt(2.5).any().is_nonzero();
    const bool close = batch[0].allclose(batch[0].round(), 0.1, 0.6);
    log.push_back(large);
    log.push_back(close);
    return classifier.loss({large ? batch[0].clamp(-1, 1) : batch[0], batch[1]});
  });
  program.batches = make_batches(10);
  for (size_t i = 0; i < program.batches.size(); ++i) {
    if (i % 3 == 1) {
      program.batches[i][0].clamp_(-2, 2);
    }
  }
  return program;
}

// Class 1 in so many rows: two counts in turn.
std::vector<Batch> batches_with_two_counts(int64_t steps) {
  std::vector<Batch> batches = make_batches(steps);
  for (int64_t i = 0; i < steps; ++i) {
    Tensor& labels = batches[static_cast<size_t>(i)][1];
    labels = torch::where(torch::randperm(kRows) < (i % 2 == 0 ? 9 : 14), 1, 2 * (labels % 2));
  }
  return batches;
}

Program nonzero_with_changing_counts() {
  Program program = logging([](const Classifier& classifier, const Batch& batch, auto& log) {
    const Tensor rows = batch[1].eq(1).nonzero().squeeze(1);
    log.push_back(static_cast<double>(rows.size(0)));
    const Tensor logits = classifier.net->forward(batch[0]);
    const Tensor others = torch::where(batch[1].ne(1))[0];
    return F::cross_entropy(logits.index_select(0, rows), batch[1].index_select(0, rows)) +
           logits.index_select(0, others).square().mean();
  });
  program.batches = batches_with_two_counts(9);
  return program;
}

Program boolean_indexing_with_changing_counts() {
  Program program = logging([](const Classifier& classifier, const Batch& batch, auto& log) {
    const Tensor logits = classifier.net->forward(batch[0]);
    const Tensor chosen = batch[1].eq(1);
    const Tensor some = logits.index({chosen});
    log.push_back(static_cast<double>(some.size(0)));
    Tensor changed = logits.clone();
    changed.index_put_({chosen}, 0.5);
    return F::cross_entropy(some, batch[1].index({chosen})) + F::cross_entropy(changed, batch[1]);
  });
  program.batches = batches_with_two_counts(9);
  return program;
}

Program masked_select_with_changing_counts() {
  Program program = logging([](const Classifier& classifier, const Batch& batch, auto& log) {
    const Tensor logits = classifier.net->forward(batch[0]);
    const Tensor some = logits.masked_select(batch[1].eq(1).unsqueeze(1));
    log.push_back(static_cast<double>(some.numel()));
    return some.tanh().square().mean() + F::cross_entropy(logits, batch[1]);
  });
  program.batches = batches_with_two_counts(9);
  return program;
}

// The mask depends on activations, so its count is known to nobody before.
Program hard_examples_are_mined() {
  return logging([](const Classifier& classifier, const Batch& batch, auto& log) {
    const Tensor each = F::cross_entropy(classifier.net->forward(batch[0]), batch[1],
                                         F::CrossEntropyFuncOptions().reduction(torch::kNone));
    const Tensor hard = each.index({each.detach() > each.detach().mean()});
    log.push_back(static_cast<double>(hard.size(0)));
    return hard.mean();
  });
}

Program unique_and_one_hot_and_repeats() {
  Program program = logging([](const Classifier& classifier, const Batch& batch, auto& log) {
    const Tensor counts = std::get<2>(at::_unique2(batch[1], true, false, true));
    const Tensor hot = F::one_hot(batch[1]).to(at::kFloat);  // the number of classes is read
    const Tensor repeated = torch::repeat_interleave(torch::arange(counts.size(0)), counts);
    log.push_back(static_cast<double>(counts[0].item<int64_t>()));
    const Tensor logits = classifier.net->forward(batch[0]);
    return -(logits.log_softmax(1) * hot).sum() / kRows +
           logits.index({repeated, torch::zeros_like(repeated)}).square().mean();
  });
  program.batches = batches_with_two_counts(9);
  return program;
}

Program batch_read_into_a_histogram() {
  return logging([](const Classifier& classifier, const Batch& batch, auto& log) {
    std::vector<float> counts(kClasses, 1.0f);
    const auto labels = batch[1].accessor<int64_t, 1>();
    for (int64_t i = 0; i < kRows; ++i) {
      counts[static_cast<size_t>(labels[i])] += 1.0f;
    }
    log.push_back(counts[0]);
    return F::cross_entropy(classifier.net->forward(batch[0]), batch[1],
                            F::CrossEntropyFuncOptions().weight(1.0 / torch::tensor(counts)));
  });
}

Program activation_printed() {
  return logging([](const Classifier& classifier, const Batch& batch, auto& log) {
    const Tensor logits = classifier.net->forward(batch[0]);
    std::ostringstream text;
    text << logits.slice(0, 0, 3);
    log.push_back(static_cast<double>(std::hash<std::string>()(text.str()) % 1000003));
    return F::cross_entropy(logits, batch[1]);
  });
}

Tensor lengths(const std::vector<int64_t>& numbers) { return torch::tensor(numbers); }

// Sizes that follow from a value of the batch.
Program sequence_cut_at_its_longest() {
  const nn::GRU gru(nn::GRUOptions(4, 8).batch_first(true));
  const auto optimizer = std::make_shared<torch::optim::SGD>(gru->parameters(), 0.1);
  Program program = {.modules = {gru.ptr()}, .optimizers = {optimizer}};
  for (int64_t i = 0; i < 9; ++i) {
    program.batches.push_back({torch::randn({5, 9, 4}), lengths({3, 2, 5 + i % 2, 1, 4})});
  }
  program.step = [gru = gru.ptr(), optimizer, log = program.log](const Batch& batch) {
    const int64_t longest = batch[1].max().item<int64_t>();
    log->push_back(static_cast<double>(longest));
    optimizer->zero_grad();
    const Tensor out = std::get<0>(gru->forward(batch[0].slice(1, 0, longest)));
    const Tensor inside = torch::arange(longest).unsqueeze(0) < batch[1].unsqueeze(1);
    const Tensor loss = (out * inside.unsqueeze(2)).square().sum() / batch[1].sum();
    loss.backward();
    optimizer->step();
    return Batch{loss, inside};
  };
  return program;
}

Program packed_sequences_with_an_lstm() {
  const nn::LSTM lstm(nn::LSTMOptions(4, 8).num_layers(2).batch_first(true));
  const auto optimizer = std::make_shared<torch::optim::SGD>(lstm->parameters(), 0.1);
  Program program = {.modules = {lstm.ptr()}, .optimizers = {optimizer}};
  for (size_t i = 0; i < 12; ++i) {
    program.batches.push_back(
        {torch::randn({3, 7, 4}), i % 2 == 0 ? lengths({7, 2, 4}) : lengths({1, 6, 6})});
  }
  program.step = [lstm = lstm.ptr(), optimizer](const Batch& batch) {
    namespace rnn = torch::nn::utils::rnn;
    optimizer->zero_grad();
    const rnn::PackedSequence packed =
        rnn::pack_padded_sequence(batch[0], batch[1], /*batch_first=*/true,
                                  /*enforce_sorted=*/false);
    const auto out = std::get<0>(lstm->forward_with_packed_input(packed));
    const Tensor padded = std::get<0>(rnn::pad_packed_sequence(out, /*batch_first=*/true));
    const Tensor loss = padded.square().sum(2).mean();
    loss.backward();
    optimizer->step();
    return Batch{loss, padded};
  };
  return program;
}

Program ctc_loss() {
  const nn::Linear layer(5, 12);
  const auto optimizer = std::make_shared<torch::optim::SGD>(layer->parameters(), 0.1);
  Program program = {.modules = {layer.ptr()}, .optimizers = {optimizer}};
  for (int64_t i = 0; i < 8; ++i) {
    program.batches.push_back({torch::randn({24, 3, 5}), torch::randint(1, 12, {3, 4}, at::kLong),
                               lengths({24, 20 - i % 2, 8}), lengths({4, 3, 1 + i % 2})});
  }
  program.step = [layer = layer.ptr(), optimizer](const Batch& batch) {
    optimizer->zero_grad();
    const Tensor log_probabilities = layer->forward(batch[0]).log_softmax(2);
    const Tensor loss = F::ctc_loss(log_probabilities, batch[1], batch[2], batch[3]);
    loss.backward();
    optimizer->step();
    return Batch{loss};
  };
  return program;
}

Program transformer_encoder_layer() {
  const nn::TransformerEncoderLayer layer(
      nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1));
  const auto optimizer = std::make_shared<torch::optim::SGD>(layer->parameters(), 0.1);
  Program program = {.modules = {layer.ptr()}, .optimizers = {optimizer}};
  for (int64_t i = 0; i < 7; ++i) {
    program.batches.push_back({torch::randn({6, 4, 8}), torch::rand({4, 6}) < 0.3});
    program.batches.back()[1].select(1, 0).fill_(false);
  }
  program.step = [layer = layer.ptr(), optimizer](const Batch& batch) {
    optimizer->zero_grad();
    const Tensor mask = torch::full({6, 6}, -std::numeric_limits<double>::infinity()).triu(1);
    const Tensor loss = layer->forward(batch[0], mask, batch[1]).square().mean();
    loss.backward();
    optimizer->step();
    return Batch{loss};
  };
  return program;
}

// Its lengths are made in the step, and it reads them through const pointers.
Program ctc_loss_of_lengths_that_are_computed() {
  Program program = ctc_loss();
  const auto layer = std::dynamic_pointer_cast<nn::LinearImpl>(program.modules[0]);
  program.step = [layer, optimizer = program.optimizers[0]](const Batch& batch) {
    optimizer->zero_grad();
    const Tensor log_probabilities = layer->forward(batch[0]).log_softmax(2);
    const Tensor steps = torch::ones_like(log_probabilities.select(2, 0)).sum(0).to(at::kLong);
    const Tensor loss = F::ctc_loss(log_probabilities, batch[1], steps, batch[3] + 0);
    loss.backward();
    optimizer->step();
    return Batch{loss};
  };
  return program;
}

// Where no gradient is needed, max_pool1d computes by itself, on several threads.
Program pooled_mask() {
  const Classifier classifier;
  return with_loss(classifier, [classifier](const Batch& batch) {
    const Tensor mask = torch::max_pool1d((batch[0] > 0).to(at::kFloat).unsqueeze(1), 3).mean();
    return F::cross_entropy(classifier.net->forward(batch[0]) * mask, batch[1]);
  });
}

// Tells a profiler where it is, as Python's optimizers do; what it is given differs at every step.
Program marks_for_a_profiler() {
  const Classifier classifier;
  return with_loss(classifier, [classifier](const Batch& batch) {
    const auto enter = c10::Dispatcher::singleton().findSchemaOrThrow("profiler::_record_function_enter_new", "");
    const auto leave = c10::Dispatcher::singleton().findSchemaOrThrow("profiler::_record_function_exit", "_RecordFunction");
    torch::jit::Stack stack = {std::string("forward"), c10::IValue()};
    enter.callBoxed(&stack);
    const Tensor loss = F::cross_entropy(classifier.net->forward(batch[0]), batch[1]);
    leave.callBoxed(&stack);
    return loss;
  });
}

}  // namespace

std::vector<ProgramCase> host_read_programs() {
  return {
      {"ItemInForwardWithABranch", item_in_forward_with_a_branch, 4},
      {"LossItemLogged", loss_item_logged},
      {"LossReadBetweenForwardAndBackward", loss_read_between_forward_and_backward},
      {"ActivationReadThroughAnAccessor", activation_read_through_an_accessor},
      // Each read through a pointer is found in a step of its own.
      {"GradientReadAfterBackward", gradient_read_after_backward, 5},
      {"ActivationWrittenThroughAPointer", activation_written_through_a_pointer},
      {"WeightChangedThroughItsPointer", weight_changed_through_its_pointer},
      {"EqualDecides", equal_decides, 4},
      {"IsNonzeroDecides", is_nonzero_decides, 4},
      {"NonzeroWithChangingCounts", nonzero_with_changing_counts, 4},
      {"BooleanIndexingWithChangingCounts", boolean_indexing_with_changing_counts, 4},
      {"MaskedSelectWithChangingCounts", masked_select_with_changing_counts, 4},
      {"HardExamplesAreMined", hard_examples_are_mined, 7},
      {"UniqueAndOneHotAndRepeats", unique_and_one_hot_and_repeats, 9},
      {"BatchReadIntoAHistogram", batch_read_into_a_histogram},
      {"ActivationPrinted", activation_printed, 7},  // its ops depend on the numbers
      {"SequenceCutAtItsLongest", sequence_cut_at_its_longest, 4},
      {"PackedSequencesWithAnLstm", packed_sequences_with_an_lstm, 6},
      {"CtcLoss", ctc_loss, 4},
      {"CtcLossOfLengthsThatAreComputed", ctc_loss_of_lengths_that_are_computed},
      {"PooledMask", pooled_mask},
      {"MarksForAProfiler", marks_for_a_profiler},
      {"TransformerEncoderLayer", transformer_encoder_layer},
  };
}

}  // namespace remat::testing

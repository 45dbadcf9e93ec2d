// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/programs.h"

// Batches of other shapes, strides and types, and tensors that share their bytes.
namespace remat::testing {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;
using at::Tensor;

Program batches_of_alternating_sizes() {
  Program program = Classifier().program();
  program.batches.clear();
  for (int64_t i = 0; i < 10; ++i) {
    program.batches.push_back(make_batch(i % 2 == 0 ? 32 : 20));
  }
  return program;
}

Program last_batch_is_smaller() {
  Program program = Classifier().program();
  program.batches.clear();
  for (int64_t i = 0; i < 12; ++i) {
    program.batches.push_back(make_batch(i % 4 == 3 ? 7 : 32));
  }
  return program;
}

// Every size once more, but never the same twice in a row.
Program sequences_of_many_lengths() {
  const nn::GRU gru(nn::GRUOptions(4, 8));
  const auto optimizer = std::make_shared<torch::optim::SGD>(gru->parameters(), 0.1);
  Program program = {.modules = {gru.ptr()}, .optimizers = {optimizer}};
  for (const int64_t length : {5, 3, 4, 3, 5, 4, 5, 3, 4}) {
    program.batches.push_back({torch::randn({length, 6, 4})});
  }
  program.step = [gru = gru.ptr(), optimizer](const Batch& batch) {
    optimizer->zero_grad();
    const Tensor loss = std::get<0>(gru->forward(batch[0])).square().mean();
    loss.backward();
    optimizer->step();
    return Batch{loss};
  };
  return program;
}

// In some batches both are one tensor, in others they only look the same.
Program one_tensor_given_twice_and_changed_in_place() {
  const Classifier classifier;
  Program program = with_loss(classifier, [classifier](const Batch& batch) {
    batch[0].mul_(2);
    return classifier.loss({batch[2] + batch[0].tanh(), batch[1]});
  });
  program.batches = make_batches(9);
  for (size_t i = 0; i < program.batches.size(); ++i) {
    Batch& batch = program.batches[i];
    batch.push_back(i % 3 == 1 ? batch[0].clone() : batch[0]);
  }
  return program;
}

Program batch_tensor_that_is_a_view_of_another() {
  const Classifier classifier;
  Program program = with_loss(classifier, [classifier](const Batch& batch) {
    batch[0].add_(1);
    batch[2].mul_(0.5);
    return classifier.loss({torch::cat({batch[2], batch[0].slice(1, 3)}, 1), batch[1]});
  });
  program.batches = make_batches(9);
  for (size_t i = 0; i < program.batches.size(); ++i) {
    Batch& batch = program.batches[i];
    const Tensor view = batch[0].slice(1, 0, 3);
    batch.push_back(i % 3 == 1 ? view.clone() : view);
  }
  return program;
}

// Windows onto one storage at offsets that change from step to step.
Program batch_windows_that_move() {
  const Classifier classifier;
  Program program = with_loss(classifier, [classifier](const Batch& batch) {
    batch[0].add_(0.5);
    return classifier.loss({batch[0] * batch[2], batch[1]});
  });
  program.batches = make_batches(9);
  for (size_t i = 0; i < program.batches.size(); ++i) {
    const Tensor all = torch::randn({2 * kRows, kFeatures});
    const int64_t first = i % 2 == 0 ? 16 : 24;
    program.batches[i][0] = all.slice(0, 0, kRows);
    program.batches[i].push_back(all.slice(0, first, first + kRows));
  }
  return program;
}

Program batch_tensor_that_is_a_parameter() {
  const Classifier classifier;
  Program program = with_loss(classifier, [classifier](const Batch& batch) {
    return classifier.loss({batch[0], batch[1]}) + 0.01 * batch[2].square().sum();
  });
  for (Batch& batch : program.batches) {
    batch.push_back(classifier.net->parameters()[0]);
  }
  return program;
}

Program batch_tensor_that_is_a_buffer() {
  const Classifier classifier;
  Program program = with_loss(classifier, [classifier](const Batch& batch) {
    const Tensor loss = classifier.loss({batch[0], batch[1]});
    return loss + (batch[2] - 1).square().sum();  // the running mean, just moved
  });
  for (size_t i = 0; i < program.batches.size(); ++i) {
    const Tensor mean = classifier.net->buffers()[0];
    program.batches[i].push_back(i % 3 == 2 ? mean.clone() : mean);
  }
  return program;
}

Program batch_tensors_with_strides() {
  Program program = Classifier().program();
  program.batches = make_batches(12);
  for (size_t i = 0; i < program.batches.size(); ++i) {
    Tensor& x = program.batches[i][0];
    switch (i % 4) {
      case 0: x = torch::randn({kFeatures, kRows}).t(); break;
      case 1: x = torch::randn({kRows, 2 * kFeatures}).slice(1, 1, 2 * kFeatures, 2); break;
      case 2: x = torch::randn({1, kFeatures}).expand({kRows, kFeatures}); break;
      default: x = torch::randn({kRows + 3, kFeatures}).slice(0, 3); break;
    }
  }
  return program;
}

Program other_types_in_the_batch() {
  const Classifier classifier;
  Program program = with_loss(classifier, [classifier](const Batch& batch) {
    const Tensor weights = torch::where(batch[2], batch[3], batch[3].new_full({}, 0.25));
    const Tensor each = F::cross_entropy(classifier.net->forward(batch[0].to(at::kFloat)), batch[1],
                                         F::CrossEntropyFuncOptions().reduction(torch::kNone));
    return (each * weights).sum() / batch[4].sum();
  });
  program.batches = make_batches(9);
  for (size_t i = 0; i < program.batches.size(); ++i) {
    Batch& batch = program.batches[i];
    batch[0] = batch[0].to(i % 2 == 0 ? at::kDouble : at::kHalf);
    batch.push_back(torch::rand({kRows}) < 0.5);
    batch.push_back(torch::rand({kRows}, at::kDouble));
    batch.push_back(torch::randint(1, 9, {kRows}, at::kByte));
  }
  return program;
}

Program double_network_and_complex_numbers() {
  nn::Linear layer(8, 8);
  layer->to(at::kDouble);
  const auto optimizer = std::make_shared<torch::optim::SGD>(layer->parameters(), 0.1);
  Program program = {.modules = {layer.ptr()}, .optimizers = {optimizer}};
  for (int64_t i = 0; i < 7; ++i) {
    program.batches.push_back({torch::randn({4, 8}, at::kDouble)});
  }
  program.step = [layer = layer.ptr(), optimizer](const Batch& batch) {
    optimizer->zero_grad();
    const Tensor spectrum = torch::fft::rfft(layer->forward(batch[0]));
    const Tensor loss = torch::view_as_real(spectrum).square().mean() + spectrum.abs().amax();
    loss.backward();
    optimizer->step();
    return Batch{loss, spectrum.detach()};
  };
  return program;
}

// The data is the program's own.
Program empty_batch_list() {
  const Classifier classifier;
  Program program = classifier.program();
  const auto data = std::make_shared<std::vector<Batch>>(make_batches(3));
  const auto step = std::make_shared<size_t>(0);
  program.step = [=](const Batch& batch) {
    TORCH_CHECK(batch.empty());
    return classifier.update(classifier.loss((*data)[(*step)++ % 3]));
  };
  program.batches.assign(7, Batch());
  return program;
}

Program batch_tensors_that_are_not_always_given() {
  const Classifier classifier;
  Program program = with_loss(classifier, [classifier](const Batch& batch) {
    const Tensor x = batch[2].defined() ? batch[0] * batch[2] : batch[0];
    return classifier.loss({batch.size() > 3 ? x + batch[3] : x, batch[1]});
  });
  program.batches = make_batches(12);
  for (size_t i = 0; i < program.batches.size(); ++i) {
    Batch& batch = program.batches[i];
    batch.push_back(i % 2 == 0 ? torch::rand({kFeatures}) : Tensor());
    if (i % 3 == 0) {
      batch.push_back(torch::rand({kFeatures}));
    }
  }
  return program;
}

Program rows_without_any() {
  const Classifier classifier;
  Program program = with_loss(classifier, [classifier](const Batch& batch) {
    return classifier.loss({batch[0], batch[1]}) + classifier.net->forward(batch[2]).sum();
  });
  classifier.net->eval();
  for (size_t i = 0; i < program.batches.size(); ++i) {
    program.batches[i].push_back(torch::randn({i % 2 == 0 ? 0 : 4, kFeatures}));
  }
  return program;
}

// Returns the batch, views of it, a parameter, nothing, one tensor twice.
Program results_that_are_not_new() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [classifier](const Batch& batch) {
    const Tensor logits = classifier.net->forward(batch[0]);
    const Tensor loss = F::cross_entropy(logits, batch[1]);
    classifier.update(loss);
    const Tensor weight = classifier.net->parameters()[0];
    return Batch{loss,          batch[0], batch[0].t(), weight, weight.detach(),
                 weight.grad(), Tensor(), logits,       logits, logits.select(0, 1)};
  };
  return program;
}

Program nothing_is_returned() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [classifier](const Batch& batch) {
    classifier.update(classifier.loss(batch));
    return Batch();
  };
  return program;
}

Program views_written_in_place() {
  const Classifier classifier;
  return with_loss(classifier, [classifier](const Batch& batch) {
    Tensor x = batch[0] * 2;
    x.slice(0, 0, 4).mul_(0.5);
    x.t().select(0, 1).add_(batch[0].select(1, 2));
    x.select(0, 3).zero_();
    x.index_put_({torch::indexing::Slice(), 0}, 1.5);
    Tensor logits = classifier.net->forward(x).clone();
    logits.select(1, 0).mul_(logits.detach().select(1, 1).clone());
    logits.view({-1}).slice(0, 0, 9).neg_();
    logits.unfold(0, 2, 2).select(2, 0).add_(0.1);
    return F::cross_entropy(logits, batch[1]);
  });
}

Program in_place_activations() {
  const nn::Sequential net(
      nn::Conv2d(nn::Conv2dOptions(3, 6, 3).padding(1)), nn::BatchNorm2d(6),
      nn::ReLU(nn::ReLUOptions().inplace(true)), nn::Conv2d(nn::Conv2dOptions(6, 6, 3).padding(1)),
      nn::LeakyReLU(nn::LeakyReLUOptions().inplace(true)), nn::Flatten(), nn::Linear(6 * 64, 8),
      nn::Dropout(nn::DropoutOptions(0.2).inplace(true)), nn::Linear(8, 3),
      nn::ELU(nn::ELUOptions().inplace(true)));
  const auto optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
  Program program = {.modules = {net.ptr()}, .optimizers = {optimizer}};
  for (int64_t i = 0; i < 7; ++i) {
    program.batches.push_back({torch::randn({4, 3, 8, 8}), torch::randint(3, {4}, at::kLong)});
  }
  program.step = [net = net.ptr(), optimizer](const Batch& batch) {
    optimizer->zero_grad();
    const Tensor loss = F::cross_entropy(net->forward(batch[0]), batch[1]);
    loss.backward();
    optimizer->step();
    return Batch{loss};
  };
  return program;
}

Program lazily_conjugated_tensors() {
  const Classifier classifier;
  return with_loss(classifier, [classifier](const Batch& batch) {
    const Tensor spectrum = torch::fft::rfft(classifier.net->forward(batch[0]));
    return F::cross_entropy((spectrum * spectrum.conj()).abs(), batch[1] % 2);
  });
}

// A rotary embedding as complex numbers: the backward of a product of them conjugates lazily.
Program complex_products() {
  const Classifier classifier;
  return with_loss(classifier, [classifier](const Batch& batch) {
    const Tensor h = classifier.net->forward(batch[0]);
    const Tensor turn = torch::polar(torch::ones({2}), torch::arange(2.0));
    const Tensor turned = torch::view_as_complex(torch::cat({h, h.slice(1, 0, 1)}, 1).view({-1, 2, 2})) * turn;
    return F::cross_entropy(torch::view_as_real(turned).flatten(1), batch[1]);
  });
}

}  // namespace

std::vector<ProgramCase> layout_programs() {
  return {
      {"BatchesOfAlternatingSizes", batches_of_alternating_sizes, 4},
      {"LastBatchIsSmaller", last_batch_is_smaller, 4},
      {"SequencesOfManyLengths", sequences_of_many_lengths, 6},
      {"OneTensorGivenTwiceAndChangedInPlace", one_tensor_given_twice_and_changed_in_place, 4},
      {"BatchTensorThatIsAViewOfAnother", batch_tensor_that_is_a_view_of_another, 4},
      {"BatchWindowsThatMove", batch_windows_that_move, 4},
      {"BatchTensorThatIsAParameter", batch_tensor_that_is_a_parameter},
      {"BatchTensorThatIsABuffer", batch_tensor_that_is_a_buffer, 4},
      {"BatchTensorsWithStrides", batch_tensors_with_strides, 8},
      {"OtherTypesInTheBatch", other_types_in_the_batch, 4},
      {"DoubleNetworkAndComplexNumbers", double_network_and_complex_numbers},
      {"EmptyBatchList", empty_batch_list, 4},
      {"BatchTensorsThatAreNotAlwaysGiven", batch_tensors_that_are_not_always_given, 8},
      {"RowsWithoutAny", rows_without_any, 4},
      {"ResultsThatAreNotNew", results_that_are_not_new},
      {"NothingIsReturned", nothing_is_returned},
      {"ViewsWrittenInPlace", views_written_in_place},
      {"InPlaceActivations", in_place_activations},
      {"LazilyConjugatedTensors", lazily_conjugated_tensors},
      {"ComplexProducts", complex_products},
  };
}

}  // namespace remat::testing

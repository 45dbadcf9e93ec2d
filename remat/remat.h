// SPDX-License-Identifier: Apache-2.0
#pragma once

// The whole public API. A header of its own is as good: each says what it needs.
//
//   remat::Step           a training step inside a budget          libtorch/step.h
//   remat::TrainingStep   the same for a loss function             libtorch/training_step.h
//   remat::checkpoint     eager checkpointing, no graph            libtorch/checkpoint.h
//   remat::fit            the largest batch that a budget allows    libtorch/fit_step.h
//   remat::capture ...    the verbs, for those who want the pieces
//
// The target remat::remat defines REMAT_WITH_LIBTORCH where the library was built with LibTorch;
// without it this is the core: graphs and schedules as text, planned, simulated, checked, placed.
#include "remat/core/analysis/interpolate.h"
#include "remat/core/error.h"
#include "remat/core/exact/bound.h"
#include "remat/core/explain.h"
#include "remat/core/fit.h"
#include "remat/core/graph.h"
#include "remat/core/graph_text.h"
#include "remat/core/moves.h"
#include "remat/core/place.h"
#include "remat/core/plan.h"
#include "remat/core/plan_file.h"
#include "remat/core/rewrite.h"
#include "remat/core/schedule.h"
#include "remat/core/schedule_text.h"
#include "remat/core/simulate.h"
#include "remat/core/units.h"
#include "remat/core/verify.h"
#include "remat/core/verify_addresses.h"

#ifdef REMAT_WITH_LIBTORCH
#include "remat/libtorch/capture.h"
#include "remat/libtorch/checkpoint.h"
#include "remat/libtorch/execute.h"
#include "remat/libtorch/fit_step.h"
#include "remat/libtorch/measure.h"
#include "remat/libtorch/policy.h"
#include "remat/libtorch/saved_plan.h"
#include "remat/libtorch/scope.h"
#include "remat/libtorch/sequential.h"
#include "remat/libtorch/training_step.h"
#endif

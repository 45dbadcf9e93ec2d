// SPDX-License-Identifier: Apache-2.0
// FileTransfers through io_uring: transfers are handed to the kernel in batches, and one call hands
// over the next ones and waits for those before.
#include "remat/libtorch/file_transfers.h"

#ifdef REMAT_WITH_URING

#include <liburing.h>

#include <cerrno>
#include <cstring>

#include "remat/core/error.h"

namespace remat::detail {
namespace {

class UringTransfers final : public FileTransfers {
 public:
  UringTransfers(int file, int64_t depth) : file_(file), depth_(depth) {}
  ~UringTransfers() override {
    if (made_) {
      io_uring_queue_exit(&ring_);
    }
  }

  // 0, or -errno.
  int make_ring() {
    const auto entries = static_cast<unsigned>(depth_);
#ifdef IORING_SETUP_COOP_TASKRUN
    // The thread that waits need not be interrupted for what has ended. Linux 5.19 and newer.
    int made = io_uring_queue_init(entries, &ring_, IORING_SETUP_COOP_TASKRUN);
#else
    int made = -EINVAL;
#endif
    if (made == -EINVAL) {
      made = io_uring_queue_init(entries, &ring_, 0);
    }
    made_ = made == 0;
    return made;
  }

  bool can_read_and_write() {
    io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
    const bool can = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                     io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
    io_uring_free_probe(probe);
    return can;
  }

  void begin(int64_t id, const Transfer& transfer) override {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    REMAT_ASSERT(entry != nullptr);
    const auto bytes = static_cast<unsigned>(transfer.bytes);
    const auto offset = static_cast<uint64_t>(transfer.offset);
    if (transfer.kind == Transfer::Kind::write) {
      io_uring_prep_write(entry, file_, transfer.memory, bytes, offset);
    } else {
      io_uring_prep_read(entry, file_, transfer.memory, bytes, offset);
    }
    entry->user_data = static_cast<uint64_t>(id);
  }

  Ended wait() override {
    io_uring_cqe* completion = nullptr;
    for (;;) {
      const int handed_over = io_uring_submit_and_wait(&ring_, 1);
      if (io_uring_peek_cqe(&ring_, &completion) == 0) {
        break;
      }
      // Out of memory for a moment, or interrupted: those that were not handed over still are in
      // the queue.
      if (handed_over < 0 && handed_over != -EINTR && handed_over != -EAGAIN &&
          handed_over != -EBUSY) {
        throw Error(concat("io_uring: ", std::strerror(-handed_over)));
      }
    }
    const Ended ended{static_cast<int64_t>(completion->user_data), completion->res};
    io_uring_cqe_seen(&ring_, completion);
    return ended;
  }

  int64_t depth() const override { return depth_; }

 private:
  int file_;
  int64_t depth_;
  io_uring ring_ = {};
  bool made_ = false;
};

}  // namespace

std::unique_ptr<FileTransfers> make_uring_transfers(int file, int64_t depth, std::string& why_not) {
  auto transfers = std::make_unique<UringTransfers>(file, depth);
  if (const int made = transfers->make_ring(); made != 0) {
    // ENOSYS: an old kernel; EPERM: a container's seccomp filter, or the administrator.
    why_not = concat("io_uring: ", std::strerror(-made));
    return nullptr;
  }
  if (!transfers->can_read_and_write()) {
    why_not = "the kernel's io_uring is older than Linux 5.6";
    return nullptr;
  }
  return transfers;
}

}  // namespace remat::detail

#else

namespace remat::detail {

std::unique_ptr<FileTransfers> make_uring_transfers(int, int64_t, std::string& why_not) {
  why_not = "built without liburing";
  return nullptr;
}

}  // namespace remat::detail

#endif

// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/file_channel.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/error.h"
#include "remat/libtorch/direct_file.h"
#include "remat/libtorch/request_queue.h"
#include "remat/libtorch/unlinked_file.h"

namespace remat::detail {
namespace {

constexpr const char* kElsewhere = "make room there, or name another folder for offloading";

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

int open_file(const FileChannelOptions& options) {
  const int file = options.without_nameless_files ? open_and_unlink_file(options.folder)
                                                  : open_unlinked_file(options.folder);
  if (file < 0) {
    throw Error(
        concat("[offload] no file can be made in '", options.folder, "': ", std::strerror(errno),
               "; expected a folder on a disk in which files can be made: name another one for "
               "offloading, or none"));
  }
  return file;
}

// 0, or errno.
int allocate(int file, int64_t bytes) {
  while (fallocate(file, 0, 0, bytes) != 0) {
    if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

std::string room_in(int file) {
  const std::optional<int64_t> free_bytes = free_bytes_beside(file);
  return free_bytes ? concat(" (", format_bytes(*free_bytes), " free)") : std::string();
}

// Signals of the program are for threads of the program.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_ = {};
};

std::string text_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown";
  }
}

class ThreadedFileChannel final : public FileChannel {
 public:
  explicit ThreadedFileChannel(FileChannelOptions options);
  ~ThreadedFileChannel() override;

  void reserve(int64_t bytes) override;
  Ticket write(int64_t offset, const void* from, int64_t bytes) override {
    // Only read from; a Transfer has one pointer for both directions.
    return push(
        {Transfer::Kind::write, offset, static_cast<char*>(const_cast<void*>(from)), bytes});
  }
  Ticket read(int64_t offset, void* to, int64_t bytes) override {
    return push({Transfer::Kind::read, offset, static_cast<char*>(to), bytes});
  }
  bool done(Ticket ticket) override { return ended_.load(std::memory_order_acquire) >= ticket; }
  void wait(Ticket ticket) override;
  void drain() noexcept override;
  int64_t alignment_bytes() const override { return facts_.alignment_bytes; }
  std::string description() const override;
  const FileChannelFacts& facts() const override { return facts_; }

 private:
  std::unique_ptr<FileTransfers> make_transfers();
  Ticket push(const Transfer& transfer);
  void wait_until_ended(std::unique_lock<std::mutex>& lock, Ticket ticket);
  // On the channel's own thread:
  void serve() noexcept;
  bool take_requests(RequestQueue& queue);
  void move_pieces(RequestQueue& queue);
  void report(const RequestQueue::Outcome& outcome);
  void refuse_all(std::exception_ptr reason);
  std::string failure(const RequestQueue::Outcome& outcome) const;

  FileChannelOptions options_;
  File file_;
  FileChannelFacts facts_;
  std::unique_ptr<FileTransfers> transfers_;
  int64_t reserved_bytes_ = 0;

  pid_t process_ = getpid();

  std::atomic<Ticket> ended_ = 0;  // this request and all before it; changed under the mutex
  // Apart: a copy of the process in which the thread is not there cannot destroy it.
  struct Meeting {
    std::mutex mutex;  // guards the rest
    std::condition_variable came;
    std::condition_variable went;
  };
  std::unique_ptr<Meeting> meeting_ = std::make_unique<Meeting>();
  Ticket last_ = 0;                              // handed out
  std::vector<RequestQueue::Request> requests_;  // not yet taken by the thread
  std::map<Ticket, std::string> failures_;
  std::exception_ptr broken_;  // why nothing can be moved any more
  Ticket first_refused_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

ThreadedFileChannel::ThreadedFileChannel(FileChannelOptions options)
    : options_(std::move(options)), file_(open_file(options_)) {
  facts_.in_memory = lies_in_memory(file_.descriptor());
  if (options_.direct) {
    const DirectAccess access = options_.without_direct
                                    ? DirectAccess{false, 1, "the file system has no direct I/O"}
                                    : make_direct(file_.descriptor());
    facts_.direct = access.possible;
    facts_.alignment_bytes = access.alignment_bytes;
    facts_.why_not_direct = access.why_not;
  }
  transfers_ = make_transfers();
  if (options_.reserve_bytes > 0) {
    reserve(options_.reserve_bytes);
  }
  const BlockedSignals blocked;  // which a new thread inherits
  try {
    thread_ = std::thread([this] { serve(); });
  } catch (const std::system_error& error) {
    throw Error(concat("[offload] no thread can be started: ", error.what()));
  }
}

std::unique_ptr<FileTransfers> ThreadedFileChannel::make_transfers() {
  std::unique_ptr<FileTransfers> made;
  if (options_.prefer_uring && !facts_.direct) {
    // The kernel would hand every piece to threads of its own, which copy it there.
    facts_.why_no_uring = "it gains nothing through the page cache";
  } else if (options_.prefer_uring) {
    made = make_uring_transfers(file_.descriptor(), options_.depth, facts_.why_no_uring);
    facts_.uring = made != nullptr;
  }
  if (made == nullptr) {
    made = make_blocking_transfers(file_.descriptor());
  }
  if (!facts_.direct) {
    made = make_uncached_transfers(file_.descriptor(), std::move(made));
  }
  return options_.around_transfers ? options_.around_transfers(std::move(made)) : std::move(made);
}

ThreadedFileChannel::~ThreadedFileChannel() {
  if (getpid() != process_) {
    // The thread is not in this copy of the process, and may seem to wait or to hold the mutex for
    // ever.
    thread_.detach();
    static_cast<void>(meeting_.release());
    return;
  }
  {
    const std::lock_guard lock(meeting_->mutex);
    stopping_ = true;
  }
  meeting_->came.notify_one();
  thread_.join();
}

std::string ThreadedFileChannel::description() const {
  return concat("a file in '", options_.folder, "'", facts_.in_memory ? " (in memory)" : "",
                facts_.direct ? ", direct" : ", through the page cache",
                facts_.uring ? ", io_uring" : ", blocking calls");
}

void ThreadedFileChannel::reserve(int64_t bytes) {
  if (bytes <= reserved_bytes_) {
    return;
  }
  {
    std::unique_lock lock(meeting_->mutex);
    wait_until_ended(lock, last_);  // they may be making the file longer
  }
  const int file = file_.descriptor();
  struct stat before = {};
  int error = fstat(file, &before) == 0 ? allocate(file, bytes) : errno;
  if (error == EOPNOTSUPP || error == ENOSYS) {
    const std::optional<int64_t> free_bytes = free_bytes_beside(file);
    error = free_bytes && *free_bytes < bytes - before.st_blocks * 512 ? ENOSPC : 0;
  }
  if (error != 0) {
    // What room it did find is given back.
    static_cast<void>(ftruncate(file, before.st_size) == 0);
    throw Error(concat("[offload] ", format_bytes(bytes), " cannot be reserved in '",
                       options_.folder, "': ", std::strerror(error), room_in(file), "; ",
                       kElsewhere));
  }
  reserved_bytes_ = bytes;
}

Channel::Ticket ThreadedFileChannel::push(const Transfer& transfer) {
  if (getpid() != process_) {
    throw Error(
        "[offload] a channel cannot be used in a process that was forked from its own; open "
        "another one there");
  }
  REMAT_ASSERT(transfer.offset >= 0 && transfer.bytes > 0);
  REMAT_ASSERT(transfer.offset % facts_.alignment_bytes == 0 &&
               transfer.bytes % facts_.alignment_bytes == 0);
  REMAT_ASSERT(reinterpret_cast<intptr_t>(transfer.memory) % facts_.alignment_bytes == 0);
  {
    const std::lock_guard lock(meeting_->mutex);
    requests_.push_back({last_ + 1, transfer});
    ++last_;
  }
  meeting_->came.notify_one();
  return last_;
}

void ThreadedFileChannel::wait_until_ended(std::unique_lock<std::mutex>& lock, Ticket ticket) {
  meeting_->went.wait(lock, [&] { return ended_.load(std::memory_order_relaxed) >= ticket; });
}

void ThreadedFileChannel::wait(Ticket ticket) {
  REMAT_ASSERT(ticket <= last_);
  std::unique_lock lock(meeting_->mutex);
  wait_until_ended(lock, ticket);
  if (const auto failed = failures_.find(ticket); failed != failures_.end()) {
    throw Error(failed->second);
  }
  if (broken_ != nullptr && ticket >= first_refused_) {
    throw Error(concat("[offload] the channel to a file in '", options_.folder,
                       "' has failed for good: ", text_of(broken_),
                       "; open another one, or do without offloading"));
  }
}

void ThreadedFileChannel::drain() noexcept {
  if (getpid() != process_) {
    return;  // nobody moves anything here
  }
  std::unique_lock lock(meeting_->mutex);
  wait_until_ended(lock, last_);
  failures_.clear();
  first_refused_ = std::max(first_refused_, last_ + 1);
}

void ThreadedFileChannel::serve() noexcept {
  pthread_setname_np(pthread_self(), "remat-channel");
  try {
    RequestQueue queue(options_.piece_bytes, facts_.alignment_bytes, transfers_->depth());
    while (take_requests(queue)) {
      move_pieces(queue);
    }
  } catch (...) {
    refuse_all(std::current_exception());
  }
}

// What is under way is unknown, and nothing can be moved any more. Allocates nothing: memory may be
// what there is none of.
void ThreadedFileChannel::refuse_all(std::exception_ptr reason) {
  std::unique_lock lock(meeting_->mutex);
  broken_ = std::move(reason);
  first_refused_ = ended_ + 1;
  do {
    requests_.clear();
    ended_.store(last_, std::memory_order_release);
    meeting_->went.notify_one();
    meeting_->came.wait(lock, [&] { return stopping_ || !requests_.empty(); });
  } while (!stopping_);
}

// Waits for requests if there is nothing to do. Says whether there is something now.
bool ThreadedFileChannel::take_requests(RequestQueue& queue) {
  std::unique_lock lock(meeting_->mutex);
  meeting_->came.wait(lock, [&] { return stopping_ || !requests_.empty() || queue.busy(); });
  if (stopping_) {
    queue.stop();
    return queue.under_way() > 0;
  }
  for (const RequestQueue::Request& each : requests_) {
    queue.push(each);
  }
  requests_.clear();
  return true;
}

void ThreadedFileChannel::move_pieces(RequestQueue& queue) {
  while (const std::optional<RequestQueue::Piece> piece = queue.next()) {
    transfers_->begin(piece->id, piece->transfer);
  }
  if (queue.under_way() > 0) {
    queue.ended(transfers_->wait());
  }
  while (const std::optional<RequestQueue::Outcome> outcome = queue.pop()) {
    report(*outcome);
  }
}

void ThreadedFileChannel::report(const RequestQueue::Outcome& outcome) {
  {
    const std::lock_guard lock(meeting_->mutex);
    if (outcome.fault != RequestQueue::Fault::none) {
      failures_[outcome.request.ticket] = failure(outcome);
    }
    ended_.store(outcome.request.ticket, std::memory_order_release);
  }
  meeting_->went.notify_one();
}

std::string ThreadedFileChannel::failure(const RequestQueue::Outcome& outcome) const {
  const Transfer& whole = outcome.request.whole;
  const bool write = whole.kind == Transfer::Kind::write;
  const std::string what =
      concat("[offload] ", format_bytes(whole.bytes), " at ", format_bytes(whole.offset),
             " of a file in '", options_.folder, "' cannot be ", write ? "written" : "read", ": ");
  switch (outcome.fault) {
    case RequestQueue::Fault::too_short:
      return what + "nothing was written there; expected what was written before";
    case RequestQueue::Fault::lost:
      return concat(what, "it could not be written before (", std::strerror(outcome.error),
                    "); write it again");
    default: break;
  }
  if (outcome.error == ENOSPC || outcome.error == EDQUOT) {
    return concat(what, std::strerror(outcome.error), room_in(file_.descriptor()), "; ",
                  kElsewhere);
  }
  return concat(what, std::strerror(outcome.error),
                "; the disk or its file system has a fault: name another folder for "
                "offloading, or none");
}

}  // namespace

std::unique_ptr<FileChannel> open_file_channel(FileChannelOptions options) {
  return std::make_unique<ThreadedFileChannel>(std::move(options));
}

}  // namespace remat::detail

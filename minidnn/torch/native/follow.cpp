// Follows the bytes that PyTorch's allocator for the CPU has given out, in all threads, however it was called: by Python,
// by operators, and by oneDNN within them.
//
// follow_install() puts an allocator before the one that is there. It hands every request on, and remembers the size of
// each block until the block is freed. A section begins and ends somewhere in time; it has the bytes given out since it
// began, less those given back, and the highest value that this had. Threads that ask at the same time may do so in any
// order; so a section also has the sum of the highest values of each thread alone, which no order exceeds. Blocks that
// are older than follow_install() are unknown: giving them back counts nothing.

#include <c10/core/Allocator.h>
#include <pthread.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace {

struct Bytes {
    int64_t now = 0, peak = 0;
    void add(int64_t bytes) {
        now += bytes;
        if (now > peak) peak = now;
    }
};

struct Section {
    Bytes all;
    std::unordered_map<std::thread::id, Bytes> each;  // by the thread that took them or gave them back
};

// What is never destroyed: other threads may free blocks while the process ends.
struct State {
    std::mutex mutex;
    std::unordered_map<void *, size_t> sizes;
    std::map<int64_t, Section> sections;
    int64_t next = 0;
    c10::Allocator *behind = nullptr;

    void add(int64_t bytes) {
        for (auto &section : sections) {
            section.second.all.add(bytes);
            section.second.each[std::this_thread::get_id()].add(bytes);
        }
    }
};

State &state() {
    static State *one = new State;
    return *one;
}

using Lock = std::lock_guard<std::mutex>;

void given(void *block, size_t bytes) {
    State &s = state();
    Lock lock(s.mutex);
    auto found = s.sizes.emplace(block, 0).first;
    s.add(int64_t(bytes) - int64_t(found->second));  // a block that another deleter has freed has its size still
    found->second = bytes;
}

void give_back(void *block) {
    State &s = state();
    {
        Lock lock(s.mutex);
        auto found = s.sizes.find(block);
        if (found != s.sizes.end()) {
            s.add(-int64_t(found->second));
            s.sizes.erase(found);
        }
    }
    s.behind->raw_deleter()(block);
}

struct Following final : c10::Allocator {
    c10::DataPtr allocate(size_t bytes) override {
        State &s = state();
        c10::DataPtr block = s.behind->allocate(bytes);
        if (block.get() && block.compare_exchange_deleter(s.behind->raw_deleter(), &give_back)) given(block.get(), bytes);
        return block;
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
    void copy_data(void *to, const void *from, std::size_t bytes) const override {
        state().behind->copy_data(to, from, bytes);
    }
};

// A child process must not inherit the lock from a thread that it does not have.
void before_fork() { state().mutex.lock(); }
void after_fork() { state().mutex.unlock(); }

}  // namespace

extern "C" {

// 0; or 1: the allocator that is there does not say how its blocks are freed; or 2: PyTorch keeps that allocator
int follow_install() {
    State &s = state();
    s.behind = c10::GetAllocator(c10::DeviceType::CPU);
    if (!s.behind->raw_deleter()) return 1;
    pthread_atfork(before_fork, after_fork, after_fork);
    auto *before = new Following;
    c10::SetAllocator(c10::DeviceType::CPU, before);
    return c10::GetAllocator(c10::DeviceType::CPU) == before ? 0 : 2;
}

// A section begins; its number
int64_t follow_begin() {
    State &s = state();
    Lock lock(s.mutex);
    s.sections[s.next] = {};
    return s.next++;
}

// Of a section: the bytes now, the most that it had, and the sum of the most of each thread. Zeros where no section of
// that number is open
void follow_read(int64_t number, int64_t *current, int64_t *peak, int64_t *bound) {
    State &s = state();
    Lock lock(s.mutex);
    auto found = s.sections.find(number);
    *current = *peak = *bound = 0;
    if (found == s.sections.end()) return;
    *current = found->second.all.now;
    *peak = found->second.all.peak;
    for (auto &thread : found->second.each) *bound += thread.second.peak;
}

void follow_end(int64_t number) {
    State &s = state();
    Lock lock(s.mutex);
    s.sections.erase(number);
}
}

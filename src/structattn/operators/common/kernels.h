// Registration of each operator's CPU kernel with the module, and distribution of a batch over threads.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

void register_decoder(nanobind::module_ &module);
void register_gaussian_attention(nanobind::module_ &module);
void register_residual_sublayers(nanobind::module_ &module);
void register_softmax_attention(nanobind::module_ &module);
void register_stack_pointer(nanobind::module_ &module);
void register_superposition_stack(nanobind::module_ &module);
void register_nondeterministic_stack(nanobind::module_ &module);
void register_stratified_stack(nanobind::module_ &module);
void register_stack_rnn(nanobind::module_ &module);

// Calls body(b) once for each b in [0, count). A sequence is never split, so the number of threads cannot change the
// order of any sum. Threads are created for each call, which costs some 20 µs and is safe after a fork. The first exception
// (out of memory) is rethrown in the caller's thread; if threads cannot be created, fewer are used.
template <class Body>
void for_each_sequence(int64_t count, int threads, const Body &body) {
    std::atomic<int64_t> next{0};
    std::exception_ptr failure;
    std::mutex failure_lock;
    auto work = [&] {
        try {
            for (int64_t b = next++; b < count; b = next++) body(b);
        } catch (...) {
            const std::lock_guard<std::mutex> hold(failure_lock);
            if (!failure) failure = std::current_exception();
        }
    };
    const int64_t helpers = std::max<int64_t>(std::min<int64_t>(threads, count) - 1, 0);
    std::vector<std::thread> pool;
    pool.reserve(helpers);
    try {
        for (int64_t i = 0; i < helpers; ++i) pool.emplace_back(work);
    } catch (const std::system_error &) {
    }
    work();
    for (auto &thread : pool) thread.join();
    if (failure) std::rethrow_exception(failure);
}

// The ring of four camera frames in C++17: handles that close themselves, errors that are exceptions.
//
//   c++ -std=c++17 frames.cpp -o frames -ldoorbell -pthread && ./frames [frames, 200]
#include <doorbell.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace doorbell {

inline void check(int code)
{
    if (code != DOORBELL_OK)
        throw std::runtime_error(std::string(doorbell_error_text(code)) + ": " + doorbell_error_detail());
}

// A handle that is closed with its owner.
template <int (*Close)(std::uint64_t)> class Handle {
    std::uint64_t raw = 0;

public:
    Handle() = default;
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;
    Handle(Handle &&other) noexcept : raw(std::exchange(other.raw, 0)) {}
    ~Handle()
    {
        if (raw != 0)
            Close(raw);
    }
    std::uint64_t *out() { return &raw; }
    operator std::uint64_t() const { return raw; }
};

using Buffer = Handle<doorbell_unpin>;
using Transfer = Handle<doorbell_release>;
using Ring = Handle<doorbell_ring_close>;

struct Session {
    Session() { check(doorbell_open(nullptr)); }
    Session(const Session &) = delete;
    ~Session() { doorbell_close(); }
};

} // namespace doorbell

int main(int argc, char **argv)
try {
    constexpr std::size_t frames = 4, bytes = 32 * 1024;
    const unsigned long wanted = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 200;
    doorbell::Session session;
    doorbell::Buffer camera, gpu, back;
    void *seen = nullptr;
    doorbell::check(doorbell_allocate(DOORBELL_HOST, frames * bytes, camera.out(), nullptr));
    doorbell::check(doorbell_allocate(DOORBELL_VIDEO, frames * bytes, gpu.out(), nullptr));
    doorbell::check(doorbell_allocate(DOORBELL_HOST, bytes, back.out(), &seen));
    doorbell::Ring ring;
    doorbell::check(doorbell_ring_open(gpu, 0, camera, 0, bytes, frames, ring.out()));

    doorbell_frame_t frame{};
    // The camera is a thread of its own: any thread may submit.
    std::exception_ptr failure;
    std::thread producer([&] {
        try {
            for (unsigned long n = 0; n < wanted; n++) {
                int code;
                while ((code = doorbell_ring_next(ring, &frame)) == DOORBELL_OVERRUN)
                    std::this_thread::yield();
                doorbell::check(code);
                std::memset(frame.pointer, static_cast<int>(n % 249), bytes);
                doorbell_ticket_t ticket = 0;
                doorbell::check(doorbell_ring_submit(ring, &ticket));
                if (n + 1 == wanted)
                    doorbell::check(doorbell_wait(ticket, DOORBELL_FOREVER));
            }
        } catch (...) {
            failure = std::current_exception();
        }
    });
    producer.join();
    if (failure)
        std::rethrow_exception(failure);
    doorbell::check(doorbell_copy(back, 0, gpu, frame.offset, bytes, DOORBELL_FOREVER));
    if (std::memcmp(seen, frame.pointer, bytes) != 0)
        throw std::runtime_error("the last frame is another on the GPU");
    std::cout << wanted << " frames in C++\n";
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}

// The ring of four camera frames in C++17.
//
//   c++ -std=c++17 frames.cpp -o frames -ldoorbell -pthread && ./frames [frames, 200]
#include <doorbell.hpp>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <thread>

int main(int argc, char **argv)
try {
    constexpr std::size_t frames = 4, bytes = 32 * 1024;
    const unsigned long wanted = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 200;
    doorbell::Session session;
    auto [camera, filled] = session.host(frames * bytes);
    auto [gpu, mapped] = session.video(frames * bytes);
    auto [back, seen] = session.host(bytes);
    doorbell::Ring ring = session.ring(gpu, camera, bytes, frames);

    doorbell_frame_t frame{};
    // The camera is a thread of its own: any thread may submit.
    std::exception_ptr failure;
    std::thread producer([&] {
        try {
            for (unsigned long n = 0; n < wanted; n++) {
                while (!ring.next(frame))
                    std::this_thread::yield();
                std::memset(frame.pointer, static_cast<int>(n % 249), bytes);
                doorbell::Ticket ticket = ring.submit();
                if (n + 1 == wanted)
                    ticket.wait();
            }
        } catch (...) {
            failure = std::current_exception();
        }
    });
    producer.join();
    if (failure)
        std::rethrow_exception(failure);
    doorbell::Order order;
    session.copy(back, 0, gpu, frame.offset, bytes, order).wait();
    if (std::memcmp(seen, frame.pointer, bytes) != 0)
        throw std::runtime_error("the last frame is another on the GPU");
    std::cout << wanted << " frames in C++\n";
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}

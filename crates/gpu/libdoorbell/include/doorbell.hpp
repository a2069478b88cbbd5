// doorbell.hpp: doorbell.h for C++17. Objects free themselves, and errors are exceptions. Programs link only libdoorbell.
//
//     doorbell::Session session;
//     auto [host, at] = session.host(bytes);
//     auto gpu = session.register_memory(cuda_pointer, bytes);
//     session.copy(gpu, 0, host, 0, bytes).wait();
//
// Each object refers to its session, which must outlive it. For all other functions of doorbell.h pass session.get(), buffer.get() and so on.
#ifndef DOORBELL_HPP
#define DOORBELL_HPP

#include "doorbell.h"

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace doorbell {

// A code that a function returned, other than DOORBELL_OK.
class Error : public std::runtime_error {
    int32_t number;

public:
    explicit Error(int32_t code)
        : std::runtime_error(std::string(doorbell_error_text(code)) + ": " + doorbell_error_detail()), number(code)
    {
    }
    // DOORBELL_BUSY and so on.
    int32_t code() const noexcept { return number; }
};

inline void check(int32_t code)
{
    if (code != DOORBELL_OK)
        throw Error(code);
}

// A submission. It may be copied, and needs no release.
class Ticket {
    doorbell_t *session = nullptr;
    doorbell_ticket_t raw = 0;

public:
    Ticket() = default;
    Ticket(doorbell_t *of, doorbell_ticket_t ticket) : session(of), raw(ticket) {}
    doorbell_ticket_t get() const noexcept { return raw; }

    void wait() const { check(doorbell_wait(session, raw, DOORBELL_FOREVER)); }
    // False if the submission is not done in time.
    bool wait_for(std::chrono::nanoseconds limit) const
    {
        int32_t code = doorbell_wait(session, raw, limit.count() < 0 ? 0 : static_cast<uint64_t>(limit.count()));
        if (code == DOORBELL_TIMEOUT)
            return false;
        check(code);
        return true;
    }
    bool done() const
    {
        bool is = false;
        check(doorbell_poll(session, raw, &is));
        return is;
    }
    // All later work of the CUDA stream waits for this submission.
    void hold(void *stream) const { check(doorbell_stream_wait(session, stream, raw)); }
};

// The tickets, stream and event that a submission waits for on the GPU. An empty order does not wait.
class Order {
    std::vector<doorbell_ticket_t> tickets;
    doorbell_order_t order = doorbell_order();

public:
    Order() = default;
    Order &after(const Ticket &ticket)
    {
        tickets.push_back(ticket.get());
        return *this;
    }
    // Null is the default stream.
    Order &after_stream(void *stream)
    {
        order.flags |= DOORBELL_ORDER_STREAM;
        order.stream = stream;
        return *this;
    }
    Order &after_event(void *event)
    {
        order.event = event;
        return *this;
    }
    const doorbell_order_t *get()
    {
        order.tickets = tickets.data();
        order.ticket_count = static_cast<uint32_t>(tickets.size());
        return &order;
    }
};

// A handle. Its destructor frees it.
template <int32_t (*Free)(doorbell_t *, uint64_t)> class Handle {
protected:
    doorbell_t *session = nullptr;
    uint64_t raw = 0;

public:
    Handle() = default;
    Handle(doorbell_t *of, uint64_t handle) : session(of), raw(handle) {}
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;
    Handle(Handle &&other) noexcept : session(other.session), raw(std::exchange(other.raw, 0)) {}
    Handle &operator=(Handle &&other) noexcept
    {
        std::swap(session, other.session);
        std::swap(raw, other.raw);
        return *this;
    }
    ~Handle()
    {
        if (raw != 0)
            Free(session, raw);
    }
    uint64_t get() const noexcept { return raw; }
};

using Buffer = Handle<doorbell_buffer_free>;

class Transfer : public Handle<doorbell_transfer_free> {
public:
    using Handle::Handle;
    Ticket submit() { return submit(nullptr); }
    Ticket submit(Order &order) { return submit(order.get()); }
    // For a transfer from Session::prepare_bytes().
    Ticket submit(const void *data, std::size_t bytes)
    {
        doorbell_ticket_t ticket = 0;
        check(doorbell_transfer_bytes_async(session, raw, data, bytes, nullptr, &ticket));
        return {session, ticket};
    }

private:
    Ticket submit(const doorbell_order_t *order)
    {
        doorbell_ticket_t ticket = 0;
        check(doorbell_transfer_async(session, raw, order, &ticket));
        return {session, ticket};
    }
};

class Graph : public Handle<doorbell_graph_free> {
public:
    using Handle::Handle;
    Ticket launch() { return launch(nullptr); }
    Ticket launch(Order &order) { return launch(order.get()); }
    template <class T> void set_param(uint32_t kernel, uint32_t offset, const T &value)
    {
        check(doorbell_graph_set_param(session, raw, kernel, offset, &value, sizeof value));
    }
    void set_pointer(uint32_t kernel, uint32_t offset, const Buffer &buffer, uint64_t at = 0)
    {
        check(doorbell_graph_set_pointer(session, raw, kernel, offset, buffer.get(), at));
    }
    // Makes another copy of the graph on a launch lane.
    Graph copy(uint32_t launch_lane = DOORBELL_OWN_LAUNCH_LANE)
    {
        doorbell_graph_t made = 0;
        check(doorbell_graph_create_copy(session, raw, launch_lane, &made));
        return {session, made};
    }

private:
    Ticket launch(const doorbell_order_t *order)
    {
        doorbell_ticket_t ticket = 0;
        check(doorbell_graph_launch(session, raw, order, &ticket));
        return {session, ticket};
    }
};

class Ring : public Handle<doorbell_ring_free> {
public:
    using Handle::Handle;
    // False on an overrun: the frame's last copy is still pending.
    bool next(doorbell_frame_t &frame)
    {
        frame.size = sizeof frame;
        int32_t code = doorbell_ring_next(session, raw, &frame);
        if (code == DOORBELL_OVERRUN)
            return false;
        check(code);
        return true;
    }
    Ticket submit()
    {
        doorbell_ticket_t ticket = 0;
        check(doorbell_ring_async(session, raw, nullptr, &ticket));
        return {session, ticket};
    }
};

// A GPU, with doorbell's separate channels on it.
class Session {
    doorbell_t *raw = nullptr;

public:
    Session() { check(doorbell_create(nullptr, &raw)); }
    explicit Session(uint32_t gpu, uint32_t lanes = 0)
    {
        doorbell_options_t options = {};
        options.size = sizeof options;
        options.gpu = gpu;
        options.lanes = lanes;
        check(doorbell_create(&options, &raw));
    }
    explicit Session(const doorbell_options_t &options) { check(doorbell_create(&options, &raw)); }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;
    Session(Session &&other) noexcept : raw(std::exchange(other.raw, nullptr)) {}
    ~Session() { doorbell_free(raw); }
    doorbell_t *get() const noexcept { return raw; }

    // CUDA's memory: cudaMalloc, cudaHostAlloc, cudaHostRegister.
    Buffer register_memory(const void *pointer, std::size_t bytes)
    {
        doorbell_buffer_t buffer = 0;
        check(doorbell_buffer_register(raw, pointer, bytes, &buffer));
        return {raw, buffer};
    }
    // Allocates pinned host memory. Returns it with its address.
    std::pair<Buffer, void *> host(std::size_t bytes) { return create(DOORBELL_HOST, bytes); }
    // Allocates GPU memory. Returns it with its address, which is the same for CPU and GPU.
    std::pair<Buffer, void *> video(std::size_t bytes) { return create(DOORBELL_VIDEO, bytes); }

    Ticket copy(const Buffer &to, uint64_t to_offset, const Buffer &from, uint64_t from_offset, uint64_t bytes)
    {
        doorbell_ticket_t ticket = 0;
        check(doorbell_copy_async(raw, to.get(), to_offset, from.get(), from_offset, bytes, nullptr, &ticket));
        return {raw, ticket};
    }
    Ticket copy(const Buffer &to, uint64_t to_offset, const Buffer &from, uint64_t from_offset, uint64_t bytes, Order &order)
    {
        doorbell_ticket_t ticket = 0;
        check(doorbell_copy_async(raw, to.get(), to_offset, from.get(), from_offset, bytes, order.get(), &ticket));
        return {raw, ticket};
    }
    Transfer prepare(const Buffer &to, uint64_t to_offset, const Buffer &from, uint64_t from_offset, uint64_t bytes)
    {
        doorbell_transfer_t transfer = 0;
        check(doorbell_transfer_create(raw, to.get(), to_offset, from.get(), from_offset, bytes, &transfer));
        return {raw, transfer};
    }
    Transfer prepare_bytes(const Buffer &to, uint64_t to_offset, uint64_t bytes)
    {
        doorbell_transfer_t transfer = 0;
        check(doorbell_transfer_create_bytes(raw, to.get(), to_offset, bytes, &transfer));
        return {raw, transfer};
    }
    Ring ring(const Buffer &to, const Buffer &from, uint64_t bytes, uint32_t frames)
    {
        doorbell_ring_t ring = 0;
        check(doorbell_ring_create(raw, to.get(), 0, from.get(), 0, bytes, frames, &ring));
        return {raw, ring};
    }
    // Takes a cudaGraphExec_t that was not launched yet.
    Graph graph(void *exec, void *stream)
    {
        doorbell_graph_t graph = 0;
        check(doorbell_graph_create(raw, exec, stream, &graph));
        return {raw, graph};
    }
    Graph chain(const std::vector<doorbell_step_t> &steps, uint32_t flags = 0)
    {
        doorbell_graph_t chain = 0;
        check(doorbell_chain_create(raw, steps.data(), steps.size(), sizeof(doorbell_step_t), flags, &chain));
        return {raw, chain};
    }

private:
    std::pair<Buffer, void *> create(uint32_t place, std::size_t bytes)
    {
        doorbell_buffer_t buffer = 0;
        void *at = nullptr;
        check(doorbell_buffer_create(raw, place, bytes, &buffer, &at));
        return {Buffer(raw, buffer), at};
    }
};

} // namespace doorbell

#endif

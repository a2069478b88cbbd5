/* doorbell.h: copies between host and GPU memory, and launches of CUDA graphs, that any thread may submit.
 *
 *     doorbell_init();                                    before the first call of CUDA
 *     doorbell_create(NULL, &doorbell);                   a session: one GPU with separate channels
 *     doorbell_buffer_register(doorbell, memory, bytes, &buffer);
 *     doorbell_copy_async(doorbell, to, 0, from, 0, bytes, NULL, &ticket);
 *     doorbell_wait(doorbell, ticket, DOORBELL_FOREVER);
 *     doorbell_free(doorbell);
 *
 * Names: _create makes something, _free ends it, _async submits and returns a ticket, _wait waits for it, _poll checks without waiting.
 * Every function that can fail returns a code: 0 (DOORBELL_OK) or an error. doorbell_error_text() explains a code, and
 * doorbell_error_detail() describes this thread's last failed call. Handles are numbers: a stale or wrong one is DOORBELL_HANDLE, one of a
 * session that another thread frees may be DOORBELL_CLOSED. A null pointer to a result is DOORBELL_ARGUMENT. Any thread may call any
 * function, unless its comment limits that.
 *
 * Structs that programs fill begin with their size, and arrays are passed with the size of an element, so that both can grow: an older program
 * works with a newer library. With an older library it is an error to set a field that it lacks.
 *
 * Made from crates/gpu/libdoorbell/src by its test `header`. Do not edit. */

#ifndef DOORBELL_H
#define DOORBELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The version of this header. doorbell_version() is that of the library. */
#define DOORBELL_VERSION_MAJOR 0
#define DOORBELL_VERSION_MINOR 9
#define DOORBELL_VERSION_PATCH 0
#define DOORBELL_VERSION (DOORBELL_VERSION_MAJOR << 16 | DOORBELL_VERSION_MINOR << 8 | DOORBELL_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* ======== Handles and structs that several parts use. ======== */

// A wait without a limit.
#define DOORBELL_FOREVER UINT64_MAX

// doorbell_order_t.flags: wait for all work that `stream` has queued now. Without this flag `stream` is ignored, because null is
// the default stream.
#define DOORBELL_ORDER_STREAM 1

// doorbell_order_t.flags, with DOORBELL_ORDER_STREAM: all later work of `stream` also waits for the submission, as after
// doorbell_stream_wait(). So the submission has this place in the stream. Set the ticket to 0 before the call. If the call
// returns an error and the ticket is not 0, it was submitted, but the stream does not wait: wait for the ticket.
#define DOORBELL_ORDER_STREAM_WAITS 2

// A session: a GPU, doorbell's channels on it, and all handles that belong to it. A process may have several, on one GPU or on
// many.
// The pointer is a number that no other session of the process ever has, and no address: a freed or wrong one gives an error.
typedef struct doorbell_t doorbell_t;

// Memory that copies may name. 0 is never a valid handle.
typedef uint64_t doorbell_buffer_t;

// A prepared copy. 0 is never a valid handle.
typedef uint64_t doorbell_transfer_t;

// A submission, to wait for. It needs no release. 0 is never a valid ticket.
typedef uint64_t doorbell_ticket_t;

// A mailbox of a running kernel. 0 is never a valid handle.
typedef uint64_t doorbell_message_t;

// A ring of frames, which are copied in turn. 0 is never a valid handle.
typedef uint64_t doorbell_ring_t;

// A prepared CUDA graph, or a chain. 0 is never a valid handle.
typedef uint64_t doorbell_graph_t;

// A queue of submissions, to wait for many of them together. 0 is never a valid handle.
typedef uint64_t doorbell_queue_t;

// A thread that launches a chain for each frame. 0 is never a valid handle.
typedef uint64_t doorbell_loop_t;

// What a submission waits for on the GPU. Every function that submits takes one, or null for no order. Set all of it to 0, then
// `size`, then the fields that you need. Later submissions on the same lane also wait.
typedef struct {
  // sizeof(doorbell_order_t).
  size_t size;
  // 0, DOORBELL_ORDER_STREAM, or that and DOORBELL_ORDER_STREAM_WAITS.
  uint32_t flags;
  // Number of tickets, up to 64.
  uint32_t ticket_count;
  // Submissions of the same session. If the lane of one dies before it is done, the waiting submission never runs: its ticket
  // gives DOORBELL_STOPPED.
  const doorbell_ticket_t *tickets;
  // A CUDA stream (CUstream, cudaStream_t). The call has CUDA write a word in the stream, which takes CUDA's locks. There is
  // no wait for an idle stream: then the call only queries it.
  void *stream;
  // A CUDA event (CUevent, cudaEvent_t), or null. It costs two CUDA calls. Waits for events run one after the other.
  void *event;
  // Only for doorbell_copy_batch_async() and doorbell_pages_async(): the buffer with a word of 32 bits, or 0. The copies begin when the word has reached
  // `wait_value`, counting up and wrapping.
  doorbell_buffer_t wait_buffer;
  // A multiple of 4.
  uint64_t wait_offset;
  // Only for doorbell_copy_batch_async() and doorbell_pages_async(): the buffer with a word of 32 bits, or 0. The GPU writes `signal_value` there when
  // all copies are done.
  doorbell_buffer_t signal_buffer;
  // A multiple of 4.
  uint64_t signal_offset;
  uint32_t wait_value;
  uint32_t signal_value;
} doorbell_order_t;

/* ======== Error codes. ======== */

// Done.
#define DOORBELL_OK 0

// The session was freed.
#define DOORBELL_CLOSED 1

// A forked child has no session and cannot open one.
#define DOORBELL_FORKED 2

// No such handle: it was freed, is of another kind or another session, or never existed.
#define DOORBELL_HANDLE 3

// A buffer's memory was freed, or now belongs to another allocation.
#define DOORBELL_FREED 4

// An offset or length is outside the buffer.
#define DOORBELL_OUTSIDE 5

// Another thread is submitting on this lane now. The call had no effect: try again.
#define DOORBELL_BUSY 6

// Too many submissions are pending. The call had no effect: try again when one is done.
#define DOORBELL_FULL 7

// The producer has reached a frame of the ring that is still being copied.
#define DOORBELL_OVERRUN 8

// More objects or items than the maximum.
#define DOORBELL_LIMIT 9

// A wrong argument: a null pointer, a length of 0, an unknown flag.
#define DOORBELL_ARGUMENT 10

// Not done within the given time.
#define DOORBELL_TIMEOUT 11

// A GPU error (Xid) killed the channel. Free the session.
#define DOORBELL_KILLED 12

// The channel was stopped, because memory was freed under a copy that did not end, or because a channel that it waited for died.
// Free the session.
#define DOORBELL_STOPPED 13

// The memory cannot be pinned.
#define DOORBELL_NOT_PINNABLE 14

// Not possible on this machine, or not in this order of calls.
#define DOORBELL_UNAVAILABLE 15

// The GPU's kernel driver refused a call.
#define DOORBELL_DRIVER 16

// CUDA refused a call.
#define DOORBELL_CUDA 17

// An error in doorbell: please report it with the detail.
#define DOORBELL_PANIC 18

// doorbell cannot launch or read the graph. The detail gives the reason.
#define DOORBELL_GRAPH 19

// Returns the meaning of a code, in English. It is never null, for any number, and stays valid forever.
// Cost: none. Threads: any.
const char *doorbell_error_text(int32_t code);

/* ======== Error details: the reason for a thread's last failed call, in the thread's own buffer. Writing it allocates no memory. ======== */

// Returns the reason for this thread's last failed call, in English. It is never null, and valid until this thread's next failed
// call. Successful calls do not change it.
// Cost: none. Threads: any, each has its own.
const char *doorbell_error_detail(void);

/* ======== Sessions: opening, finding and closing them. ======== */

// doorbell_options_t.kind: in CUDA's address space. Without CUDA, on the software GPU if it is preloaded.
#define DOORBELL_ANY 0

// doorbell_options_t.kind: in CUDA's address space.
#define DOORBELL_BESIDE_CUDA 1

// doorbell_options_t.kind: on the software GPU, which must be preloaded.
#define DOORBELL_SOFTWARE 2

// doorbell_options_t.flags: each submission checks with CUDA that the memory is still the registered allocation. This finds
// frees that doorbell cannot see otherwise. It costs 1 us or more, and CUDA's locks, for each submission: a submission waits
// while another thread is in a long CUDA call.
#define DOORBELL_CHECK 1

// doorbell_options_t.flags: use the machine's own profile, if `doorbell calibrate` has written one. It is the file that
// $DOORBELL_PROFILE names, otherwise the command's default file. A profile of another machine is an error.
#define DOORBELL_OWN_PROFILE 2

// doorbell_options_t.flags: lists to the GPU leave the engine with the most physical engines alone. On an H200, 16 KiB pages move
// at 29 GB/s instead of 53, and matrix products next to them lose 0.4 % of their speed instead of 3.4 %.
#define DOORBELL_SPARE_KERNELS 4

// Called with a text when a session or one of its channels is opened, and when the session is closed. Any thread may make the
// call. The function must not call doorbell, and must return: a C++ exception or a longjmp that leaves it ends the process.
typedef void (*doorbell_log_t)(void *user, const char *text);

// Options of a session. Set all of it to 0, then `size`, then the fields that you need.
typedef struct {
  // sizeof(doorbell_options_t).
  size_t size;
  // DOORBELL_ANY, DOORBELL_BESIDE_CUDA or DOORBELL_SOFTWARE.
  uint32_t kind;
  // CUDA's number of the GPU. The session uses the GPU's primary context.
  uint32_t gpu;
  // How many threads have their own lane, up to 64. 0 means 8. A lane is DOORBELL_BUSY while another thread submits on it, or
  // makes or frees an object of that lane.
  uint32_t lanes;
  // 0, or of DOORBELL_CHECK, DOORBELL_OWN_PROFILE and DOORBELL_SPARE_KERNELS those that you want.
  uint32_t flags;
  // Null, or a function that gets a text when the session or a channel is opened, and when the session is closed.
  doorbell_log_t log;
  // Passed to log.
  void *log_user;
  // Null, or the file of the profile (`doorbell calibrate -o FILE`) that decides how copies are made. Null without
  // DOORBELL_OWN_PROFILE: the file that $DOORBELL_PROFILE names, if it is set. An empty text: no profile.
  const char *profile;
  // Number of channels for launches of graphs, up to 16. 0 means 1. Threads that launch on different channels never get
  // DOORBELL_BUSY because of each other, and their launches are not ordered. A graph belongs to the launch lane of the thread
  // that made it, or to the lane that doorbell_graph_create_copy() names. With as many launch lanes as threads, each thread
  // has its own. A channel is opened with its first graph.
  uint32_t launch_lanes;
} doorbell_options_t;

// Returns the library's version, in the form of DOORBELL_VERSION. A program that was built with the header of 1.2 works with
// libraries 1.2 and later of the same major version.
// Cost: none. Threads: any.
uint32_t doorbell_version(void);

// Begins to observe CUDA's calls to the kernel driver, which a session in CUDA's address space needs. Call it before CUDA is
// initialised. doorbell_create() may come later, when CUDA is in use. It loads libcuda but does not initialise it. A second call
// has no effect. If CUDA was initialised before, this also returns DOORBELL_OK. Then doorbell_watching() gives false,
// doorbell_create() gets CUDA's state from the kernel driver, and graphs return DOORBELL_UNAVAILABLE.
// Cost: milliseconds, once. Threads: any. Errors: DOORBELL_UNAVAILABLE without libcuda, DOORBELL_FORKED.
int32_t doorbell_init(void);

// Reports whether doorbell has observed CUDA's driver calls since CUDA was initialised. False means that CUDA was initialised
// before doorbell_init().
// Cost: that of doorbell_init(), if it was not called before. Threads: any. Errors: as doorbell_init().
int32_t doorbell_watching(bool *from_the_start);

// Opens a session. `options` may be null: GPU 0, 8 lanes, one launch lane, and the profile that $DOORBELL_PROFILE names, if it
// is set. If the profile is not a file or is of another machine, the call returns DOORBELL_UNAVAILABLE and the detail lists the
// differences. A process may have 64 sessions at a time. Sessions share no state: a handle of one gives DOORBELL_HANDLE in
// another. If two libraries of a process use doorbell, each makes its own session. The pointer is no address: do not follow it.
// Cost: some milliseconds for each lane. With CUDA, it also makes the GPU's primary context if there is none. The thread's
// current context does not change. Threads: any. Errors: DOORBELL_UNAVAILABLE, DOORBELL_ARGUMENT, DOORBELL_LIMIT,
// DOORBELL_DRIVER, DOORBELL_CUDA, DOORBELL_FORKED.
int32_t doorbell_create(const doorbell_options_t *options,
                        doorbell_t **doorbell);

// Closes a session and ends all its handles. It waits up to ten seconds for pending work and then stops the rest. Null has no
// effect.
// Cost: some milliseconds for each lane. Threads: any. Pending calls of other threads end first, and later calls return
// DOORBELL_CLOSED. Errors: DOORBELL_CLOSED, DOORBELL_HANDLE, DOORBELL_FORKED.
int32_t doorbell_free(doorbell_t *doorbell);

/* ======== Memory that copies may name. ======== */

// doorbell_buffer_create: host memory.
#define DOORBELL_HOST 0

// doorbell_buffer_create: GPU memory. The CPU can write it at some 20 GB/s. Each read by the CPU is a round trip over PCIe.
#define DOORBELL_VIDEO 1

// Registers `length` bytes of CUDA's memory at `pointer` (cudaMalloc, cudaHostAlloc, cudaHostRegister), so that copies may name
// them. The registration ends with doorbell_buffer_free(), or when CUDA frees the memory. After CUDA's free, copies return
// DOORBELL_FREED. If the profile names stores or loads of the CPU, GPU memory of up to 256 MiB is also mapped for the CPU. This
// takes a descriptor and the kernel driver's locks.
// Memory of another GPU can be registered while the session's GPU has peer access to it (cuCtxEnablePeerAccess,
// cudaDeviceEnablePeerAccess). When that access ends, copies return DOORBELL_FREED.
// Cost: microseconds, and CUDA's locks. It waits if another thread is in a long CUDA call. Threads: any. Errors:
// DOORBELL_NOT_PINNABLE with the reason, DOORBELL_UNAVAILABLE without CUDA, DOORBELL_LIMIT (65,536 at a time),
// DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_buffer_register(doorbell_t *doorbell,
                                 const void *pointer,
                                 size_t length,
                                 doorbell_buffer_t *buffer);

// Allocates host memory (DOORBELL_HOST) or GPU memory (DOORBELL_VIDEO) as a buffer, in whole pages. Host memory is pinned and
// its pages are present. The call does not use CUDA. `pointer` may be null.
// Cost: some hundred microseconds, and the kernel driver's locks. Threads: any. Errors: DOORBELL_DRIVER, DOORBELL_LIMIT,
// DOORBELL_ARGUMENT (a length of 0, or more than 16 GiB), DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_buffer_create(doorbell_t *doorbell,
                               uint32_t place,
                               size_t length,
                               doorbell_buffer_t *buffer,
                               void **pointer);

// Returns the address and the length of a buffer. Either pointer may be null.
// Cost: a microsecond. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_buffer_get(doorbell_t *doorbell,
                            doorbell_buffer_t buffer,
                            void **pointer,
                            uint64_t *length);

// Ends a buffer. From this call on, no new submission can name it. The call waits for other threads' calls that use the buffer,
// and up to a second for submissions that name it. For memory from doorbell_buffer_register(), it then stops the lanes that
// still copy to or from it. Memory from doorbell_buffer_create() is freed when those submissions are done. The call neither
// waits for nor stops other submissions.
// Cost: microseconds and the wait. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED. DOORBELL_CLOSED while another thread is
// in doorbell_free(): copies may still write the memory until that call has returned.
int32_t doorbell_buffer_free(doorbell_t *doorbell,
                             doorbell_buffer_t buffer);

/* ======== Copies that are written when they are submitted. ======== */

// doorbell_copy_explain: a copy engine makes the copy.
#define DOORBELL_BY_ENGINE 0

// doorbell_copy_explain: the bytes are part of the command stream.
#define DOORBELL_BY_INLINE 1

// doorbell_copy_explain: the CPU stores the bytes. The copy is done when the submission returns.
#define DOORBELL_BY_STORES 2

// doorbell_copy_explain: the CPU loads the bytes. The copy is done when the submission returns.
#define DOORBELL_BY_LOADS 3

// doorbell_pages_t.flags: a number that is in `to_index` twice is an error, before anything is copied, and so are parts whose
// pages overlap in one buffer. The check allocates up to 8 bytes for each number.
#define DOORBELL_PAGES_DISTINCT 1

// One piece of a batch.
typedef struct {
  doorbell_buffer_t to;
  uint64_t to_offset;
  doorbell_buffer_t from;
  uint64_t from_offset;
  uint64_t bytes;
} doorbell_piece_t;

// Two buffers between which pages are copied, and where in each the page with the number 0 begins: a layer, or its keys or its
// values.
typedef struct {
  doorbell_buffer_t to;
  uint64_t to_offset;
  doorbell_buffer_t from;
  uint64_t from_offset;
} doorbell_part_t;

// Which pages are copied, in each part: the one with the number `from_index[n]` becomes the one with the number `to_index[n]`. Set
// all of it to 0, then `size`, then the fields that you need.
typedef struct {
  // sizeof(doorbell_pages_t).
  size_t size;
  // Bytes of a page, up to 1 GiB.
  uint64_t bytes;
  // Bytes from a page's begin to that of the next number. 0: `bytes`.
  uint64_t to_stride;
  uint64_t from_stride;
  // `count` numbers of 4 or 8 bytes, as `index_size` says, at a multiple of that. Null: 0, 1, 2 and so on.
  const void *to_index;
  const void *from_index;
  size_t count;
  uint32_t index_size;
  // 0 or DOORBELL_PAGES_DISTINCT.
  uint32_t flags;
} doorbell_pages_t;

// Copies bytes from one buffer to another and waits until the copy is done. It also waits for a lane and for room on it.
// Cost: that of doorbell_copy_async() and the copy. It spins for some 100 us, then yields. Threads: any. Errors: those of
// doorbell_copy_async() except DOORBELL_BUSY and DOORBELL_FULL, and also DOORBELL_TIMEOUT. After DOORBELL_TIMEOUT the copy may
// still be pending, without a ticket, or was not submitted. Its memory is free when doorbell_buffer_free() has returned. To be
// able to wait again, use doorbell_copy_async().
int32_t doorbell_copy(doorbell_t *doorbell,
                      doorbell_buffer_t to,
                      uint64_t to_offset,
                      doorbell_buffer_t from,
                      uint64_t from_offset,
                      uint64_t bytes,
                      uint64_t timeout_ns);

// Submits a copy from one buffer to another. If the profile names stores or loads of the CPU for this size, the CPU makes the
// copy and it is done when the call returns: see doorbell_copy_explain(). All other copies use the thread's lane, or any free
// lane if another thread is submitting on that one. So copies may end in any order. If the order matters, wait for the earlier
// copy or use `order`, which may be null.
// Cost: a submission whose command words are written and checked, more than doorbell_transfer_async(). No lock, no allocation,
// no system call, unless memory was unmapped since the last submission or `order` names a stream or an event. (A thread's very
// first call may allocate, because the loader makes room for its variables.) Threads: any. Errors: DOORBELL_BUSY and
// DOORBELL_FULL: try again. DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_ARGUMENT, DOORBELL_CLOSED,
// DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED. DOORBELL_LIMIT for more than 64 tickets. For a stream or event also
// DOORBELL_CUDA, DOORBELL_UNAVAILABLE without CUDA, and DOORBELL_FULL while 1,024 orders of streams are pending. After an error,
// the copy was not submitted.
int32_t doorbell_copy_async(doorbell_t *doorbell,
                            doorbell_buffer_t to,
                            uint64_t to_offset,
                            doorbell_buffer_t from,
                            uint64_t from_offset,
                            uint64_t bytes,
                            const doorbell_order_t *order,
                            doorbell_ticket_t *ticket);

// Submits many copies with one ticket. `piece_size` is sizeof(doorbell_piece_t). The copies may overtake one another, so no copy
// may need another's result. The first one's direction, to the GPU or from it, selects the copy engine. Copies in the other
// direction may follow on the same engine. 128 or more to the GPU use the engine with the most physical engines, if no copy from
// the GPU is pending or prepared. With an `order`, `count` may be 0: the submission then only waits and signals.
// Cost: that of doorbell_copy_async(), and the words of each piece. A list of more than 256 pieces is submitted in parts. If there
// is no room for one, the call waits until the GPU has copied earlier ones: with an idle lane from some 7,000 pieces on. Threads: any.
// Errors: as doorbell_copy_async(), and DOORBELL_LIMIT for more than 16,777,216 pieces, or more than 4,096 that wait for a word. After
// an error, no piece was submitted. But if memory is freed, or the session closed, or the channel dies during the call, the first
// parts may have been copied. They have ended when the call returns.
int32_t doorbell_copy_batch_async(doorbell_t *doorbell,
                                  const doorbell_piece_t *pieces,
                                  size_t count,
                                  size_t piece_size,
                                  const doorbell_order_t *order,
                                  doorbell_ticket_t *ticket);

// Copies pages by their numbers, the same ones in each of `part_count` parts, with one ticket. `part_size` is
// sizeof(doorbell_part_t). Pages may overtake one another, so no two may have the same destination. Neighbours in both buffers are
// copied as one. The first part's direction selects the copy engine. All parts together have up to 16,777,216 pages.
// Cost: less than that of doorbell_copy_batch_async() with as many pieces, and it waits as that does. Threads: any.
// Errors: as doorbell_copy_batch_async(). A number that is no page of its buffer is DOORBELL_OUTSIDE, before anything is copied.
int32_t doorbell_pages_async(doorbell_t *doorbell,
                             const doorbell_part_t *parts,
                             size_t part_count,
                             size_t part_size,
                             const doorbell_pages_t *pages,
                             const doorbell_order_t *order,
                             doorbell_ticket_t *ticket);

// Reports how a copy between two buffers is made, and why. `prepared` means a copy from doorbell_transfer_create(), otherwise
// one from doorbell_copy() or doorbell_copy_async(). `way` becomes DOORBELL_BY_ENGINE, DOORBELL_BY_INLINE, DOORBELL_BY_STORES or
// DOORBELL_BY_LOADS. `text` gets the reason, at most `room` bytes of English with a zero at the end. Either may be null. Batches
// of several pieces, rings and ordered copies always use copy engines.
// Cost: microseconds, and it allocates. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT (a length of 0),
// DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_copy_explain(doorbell_t *doorbell,
                              doorbell_buffer_t to,
                              doorbell_buffer_t from,
                              uint64_t bytes,
                              bool prepared,
                              uint32_t *way,
                              char *text,
                              size_t room);

/* ======== Prepared copies, which are submitted often. ======== */

// Prepares a copy, to submit it often. It is checked here, once, and made in the way that doorbell_copy_explain() reports. It
// belongs to this thread's lane.
// Cost: some hundred microseconds. It allocates, and requests memory from the kernel driver. For memory from
// doorbell_buffer_register() it also checks with CUDA that it is still the same allocation: it waits if another thread is in a
// long CUDA call. Threads: any. It waits for the thread's lane. Errors: DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED,
// DOORBELL_ARGUMENT (a length of 0, or more than 1 GiB), DOORBELL_LIMIT (4,096 for each lane), DOORBELL_DRIVER,
// DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_transfer_create(doorbell_t *doorbell,
                                 doorbell_buffer_t to,
                                 uint64_t to_offset,
                                 doorbell_buffer_t from,
                                 uint64_t from_offset,
                                 uint64_t bytes,
                                 doorbell_transfer_t *transfer);

// Prepares a copy of up to 64 KiB whose bytes are given at each submission. They are part of the command stream and need no
// buffer, for example for parameters of a running kernel. All such copies share one lane, on the graphics engine.
// Cost, threads, errors: as doorbell_transfer_create().
int32_t doorbell_transfer_create_bytes(doorbell_t *doorbell,
                                       doorbell_buffer_t to,
                                       uint64_t to_offset,
                                       uint64_t bytes,
                                       doorbell_transfer_t *transfer);

// Submits a copy that doorbell_transfer_create() has prepared. Up to 32 submissions of a transfer may be pending. `order` may be
// null. With an order, a transfer that the CPU stores, loads or reads (doorbell_copy_explain()) uses a copy engine instead, on
// any free lane. If that returns DOORBELL_FULL, later submissions on the lane may wait for the order all the same.
// Cost: 0.069 to 0.095 us on an H100 (the 95 % interval of p50, on a bare channel), and some words for each ticket of an order.
// For stores and loads, the whole copy. No lock, no allocation, no system call, unless an order names a stream or an event.
// Threads: any. If two threads submit on the same lane at the same instant, the second does not wait but gets DOORBELL_BUSY.
// Errors: DOORBELL_BUSY and DOORBELL_FULL: try again. DOORBELL_HANDLE, DOORBELL_FREED, DOORBELL_ARGUMENT, DOORBELL_CLOSED,
// DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED. For an order also those of doorbell_copy_async(). After an error, the copy was
// not submitted.
int32_t doorbell_transfer_async(doorbell_t *doorbell,
                                doorbell_transfer_t transfer,
                                const doorbell_order_t *order,
                                doorbell_ticket_t *ticket);

// Submits a copy that doorbell_transfer_create_bytes() has prepared, with the bytes at `data`, as many as were prepared. They
// are read before this returns. Otherwise as doorbell_transfer_async().
// Cost: that of doorbell_transfer_async(), and storing the bytes. Threads, errors: as doorbell_transfer_async().
int32_t doorbell_transfer_bytes_async(doorbell_t *doorbell,
                                      doorbell_transfer_t transfer,
                                      const void *data,
                                      size_t bytes,
                                      const doorbell_order_t *order,
                                      doorbell_ticket_t *ticket);

// Ends a transfer. Its pending submissions continue.
// Cost: microseconds. It frees memory. Threads: any. It waits for the transfer's lane. Errors: DOORBELL_HANDLE, DOORBELL_CLOSED,
// DOORBELL_FORKED.
int32_t doorbell_transfer_free(doorbell_t *doorbell,
                               doorbell_transfer_t transfer);

/* ======== Tickets: waiting until submissions are done. ======== */

// Waits until a submission is done. Its results are then visible to the CPU and to the GPU. DOORBELL_FOREVER waits without a
// limit.
// Cost: it spins for some 100 us, then yields between polls. Threads: any, several at a time. Errors: DOORBELL_TIMEOUT,
// DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
int32_t doorbell_wait(doorbell_t *doorbell,
                      doorbell_ticket_t ticket,
                      uint64_t timeout_ns);

// Waits as doorbell_wait() does, but sleeps between polls after `spin_ns`. It is for waits of milliseconds, which would use up a
// CPU. DOORBELL_FOREVER never sleeps, 0 sleeps immediately.
// Cost: a wake-up for each poll. The wait ends at most 50 us, or an eighth of its length, late. Threads, errors: as
// doorbell_wait().
int32_t doorbell_wait_sleeping(doorbell_t *doorbell,
                               doorbell_ticket_t ticket,
                               uint64_t spin_ns,
                               uint64_t timeout_ns);

// Waits until one of up to 65,536 submissions is done, on any lanes. `index` becomes its position, the first one if several are done.
// Cost: as doorbell_wait(), and a look at each. Threads: any. Errors: as doorbell_wait(), if none is done and one can never end.
// DOORBELL_ARGUMENT for an empty array, DOORBELL_LIMIT.
int32_t doorbell_wait_any(doorbell_t *doorbell,
                          const doorbell_ticket_t *tickets,
                          size_t count,
                          uint64_t timeout_ns,
                          size_t *index);

// Waits until all of up to 65,536 submissions are done, on any lanes.
// Cost, threads: as doorbell_wait_any(). Errors: DOORBELL_LIMIT, and as doorbell_wait(), as soon as one of them can never end:
// doorbell_poll() finds which one.
int32_t doorbell_wait_all(doorbell_t *doorbell,
                          const doorbell_ticket_t *tickets,
                          size_t count,
                          uint64_t timeout_ns);

// Reports whether a submission is done.
// Cost: a load, and two atomic instructions. No lock, no allocation, no system call. Threads: any. Errors: as doorbell_wait()
// except DOORBELL_TIMEOUT.
int32_t doorbell_poll(doorbell_t *doorbell,
                      doorbell_ticket_t ticket,
                      bool *done);

// Returns how many submissions of the ticket's lane, up to this one, are not done. 0 means that this one is done.
// Cost, threads, errors: as doorbell_poll().
int32_t doorbell_pending(doorbell_t *doorbell,
                         doorbell_ticket_t ticket,
                         uint64_t *left);

// Makes all later work of a CUDA stream (CUstream, cudaStream_t, or null for the default stream) wait for a submission. The lane
// writes a word after the submission, and the stream gets a wait for that word. A copy by stores or loads is already done, so
// the stream gets no wait for it. If the lane dies before it has written the word, a doorbell thread writes it within a tenth of
// a second. Then the stream continues, and the ticket gives the error.
// Cost: a submission, and a call of cuStreamWaitValue32 with CUDA's locks. Threads: any. Errors: those of doorbell_copy_async()
// for streams, and DOORBELL_BUSY while another thread submits on the lane.
int32_t doorbell_stream_wait(doorbell_t *doorbell,
                             void *stream,
                             doorbell_ticket_t ticket);

/* ======== Queues of submissions, for threads and event loops that wait for many. ======== */

// A submission that is done, or that can never end.
typedef struct {
  doorbell_ticket_t ticket;
  // The number that was given to doorbell_queue_add().
  uint64_t user;
  // DOORBELL_OK, or if its lane ended before it: DOORBELL_KILLED, DOORBELL_STOPPED or DOORBELL_CLOSED.
  int32_t code;
} doorbell_done_t;

// Makes a queue for up to `size` submissions of the session at a time, 65,536 at most. Any number of threads may add, take and
// wait.
// Cost: some memory. Threads: any. Errors: DOORBELL_ARGUMENT, DOORBELL_LIMIT (4,096 queues in a process), DOORBELL_FORKED.
int32_t doorbell_queue_create(doorbell_t *doorbell,
                              size_t size,
                              doorbell_queue_t *queue);

// Adds a submission, with a number that is returned with it.
// Cost: the queue's lock. With a descriptor it may also wake a thread. Threads: any. Errors: DOORBELL_FULL, DOORBELL_HANDLE,
// DOORBELL_UNAVAILABLE, DOORBELL_CLOSED, DOORBELL_FORKED. A dead lane is not an error here: the submission is returned with that
// error.
int32_t doorbell_queue_add(doorbell_t *doorbell,
                           doorbell_queue_t queue,
                           doorbell_ticket_t ticket,
                           uint64_t user);

// Takes up to `room` submissions that are done, in the order in which they were added. `count` becomes their number, and
// `done_size` is sizeof(doorbell_done_t). The call never waits.
// Cost: the queue's lock, and a look at the pending submissions. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT,
// DOORBELL_FORKED.
int32_t doorbell_queue_poll(doorbell_t *doorbell,
                            doorbell_queue_t queue,
                            doorbell_done_t *done,
                            size_t room,
                            size_t done_size,
                            size_t *count);

// Waits until a submission can be taken. It sleeps between polls.
// Cost: as doorbell_wait_sleeping(). Threads: any, several at a time. Errors: DOORBELL_TIMEOUT, DOORBELL_HANDLE,
// DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_queue_wait(doorbell_t *doorbell,
                            doorbell_queue_t queue,
                            uint64_t timeout_ns);

// Removes a submission that was not taken yet. `was_there` (may be null) reports whether the queue had it. The submission itself
// continues: only the end of its lane can end it.
// Cost: the queue's lock. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED.
int32_t doorbell_queue_remove(doorbell_t *doorbell,
                              doorbell_queue_t queue,
                              doorbell_ticket_t ticket,
                              bool *was_there);

// Returns a descriptor for poll, epoll and asyncio. It becomes readable when a submission can be taken, and stays so until
// doorbell_queue_poll() has taken all that are done. Do not read from it or close it: it ends with the queue. The first
// descriptor of a session starts a thread that polls the submissions in such queues.
// Cost: a system call. Threads: any. Errors: DOORBELL_UNAVAILABLE, DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_queue_descriptor(doorbell_t *doorbell,
                                  doorbell_queue_t queue,
                                  int32_t *descriptor);

// Ends a queue, and the waits of all threads on it. The submissions in it continue.
// Cost: microseconds. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED.
int32_t doorbell_queue_free(doorbell_t *doorbell, doorbell_queue_t queue);

/* ======== Rings of frames, which are filled and copied in turn. ======== */

// A frame of a ring, for the producer to fill.
typedef struct {
  // sizeof(doorbell_frame_t): set it before the call.
  size_t size;
  // Its offset in the source buffer.
  uint64_t offset;
  // Its address. Null for CUDA's memory on the GPU, which the CPU does not see: there kernels fill it.
  void *pointer;
  // Its number in the ring.
  uint32_t index;
} doorbell_frame_t;

// Makes a ring of 2 to 1,024 frames of `bytes` each. The frames are consecutive in both buffers, from the offsets on. The
// producer fills the next frame while the one before is being copied. A copy engine makes the copies, and up to 32 may be
// pending.
// Cost: that of doorbell_transfer_create(). Threads: any may make it. One at a time may use it. Errors: as
// doorbell_transfer_create().
int32_t doorbell_ring_create(doorbell_t *doorbell,
                             doorbell_buffer_t to,
                             uint64_t to_offset,
                             doorbell_buffer_t from,
                             uint64_t from_offset,
                             uint64_t bytes,
                             uint32_t frames,
                             doorbell_ring_t *ring);

// Returns the next frame, for the producer to fill. Another call before doorbell_ring_async() returns the same one.
// Cost: a few loads and atomic instructions. No lock, no allocation, no system call. Threads: one at a time. Errors:
// DOORBELL_OVERRUN while the frame's last copy is pending. DOORBELL_BUSY, DOORBELL_HANDLE, DOORBELL_ARGUMENT, DOORBELL_CLOSED,
// DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
int32_t doorbell_ring_next(doorbell_t *doorbell,
                           doorbell_ring_t ring,
                           doorbell_frame_t *frame);

// Submits the copy of the frame that doorbell_ring_next() returned, and moves on to the next frame. `order` may be null.
// Cost: that of doorbell_transfer_async(). Threads: one at a time. Errors: DOORBELL_ARGUMENT without a frame, and as
// doorbell_transfer_async(). After an error, the frame is still the next one.
int32_t doorbell_ring_async(doorbell_t *doorbell,
                            doorbell_ring_t ring,
                            const doorbell_order_t *order,
                            doorbell_ticket_t *ticket);

// Ends a ring. Its pending copies continue.
// Cost, threads, errors: as doorbell_transfer_free().
int32_t doorbell_ring_free(doorbell_t *doorbell, doorbell_ring_t ring);

/* ======== Messages to a running kernel. ======== */

// Maximum number of bytes of a message, and of its answer.
#define DOORBELL_MESSAGE_BYTES 56

// Makes a mailbox for messages to a running kernel: 64 bytes of GPU memory, and 64 bytes of host memory for the kernel's
// answers, both at multiples of 64. Both are set to 0. Launch the kernel after this call. A message is one line, written as a
// whole: 56 bytes (missing ones are 0), a number, and a sum. Word w[15] is the sum, modulo 2^32, of w[i] * (2 * i + 1) *
// 0x9e3779b1 over the words w[0] to w[14] (bytes and number). A kernel reads the line (four loads of 16 bytes, ld.relaxed.sys).
// It takes the message if the number is not the last one and the sum is right. It answers with a line of the same form and
// number (st.relaxed.sys). Only the newest message counts: one that the kernel has not taken is overwritten. A message is not a
// copy, and no copy is ordered after it.
// Cost: that of doorbell_transfer_create(), one descriptor, a write to the GPU's memory and a load from it. Threads: any. It
// waits for the thread's lane. Errors: DOORBELL_ARGUMENT for other memory or another place. DOORBELL_DRIVER if the mailbox
// cannot be mapped. DOORBELL_LIMIT (256 for each lane), DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_HANDLE, DOORBELL_CLOSED,
// DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
int32_t doorbell_message_create(doorbell_t *doorbell,
                                doorbell_buffer_t mailbox,
                                uint64_t mailbox_offset,
                                doorbell_buffer_t answers,
                                uint64_t answers_offset,
                                doorbell_message_t *message);

// Sends up to 56 bytes. Messages are numbered 1, 2 and so on. `number` may be null.
// Cost: one store of 64 bytes to the GPU. No lock, no allocation, no system call. Threads: any. DOORBELL_BUSY while another
// thread submits on the lane. Errors: DOORBELL_BUSY and DOORBELL_FULL: try again. DOORBELL_ARGUMENT, DOORBELL_FREED,
// DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED. After an error, the message was not sent.
int32_t doorbell_message_send(doorbell_t *doorbell,
                              doorbell_message_t message,
                              const void *data,
                              size_t bytes,
                              uint32_t *number);

// Waits until the kernel has answered the message of this number or a later one, and returns the answer's 56 bytes. `answer` may
// be null. A timeout of 0 looks once.
// Cost: it reads host memory, spins for some 100 us, then yields. No lock, no allocation. Threads: any. Errors:
// DOORBELL_TIMEOUT, DOORBELL_FREED, DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_message_wait(doorbell_t *doorbell,
                              doorbell_message_t message,
                              uint32_t number,
                              void *answer,
                              uint64_t timeout_ns);

// Ends a mailbox. The kernel gets no message: first send the one that ends it.
// Cost, threads, errors: as doorbell_transfer_free().
int32_t doorbell_message_free(doorbell_t *doorbell, doorbell_message_t message);

/* ======== CUDA graphs, launched without CUDA. ======== */

// doorbell_graph_create_copy(): the launch lane of the calling thread.
#define DOORBELL_OWN_LAUNCH_LANE 4294967295

// Prepares an instantiated CUDA graph (CUgraphExec, cudaGraphExec_t) for launches without CUDA. CUDA launches it in `stream` a
// few times, and each launch does the graph's work. doorbell reads the command words of these launches and clones the QMDs and
// constant banks of the graph's kernels. Call doorbell_init() before CUDA is initialised. Call this before the graph's first
// launch, because that launch uploads the graph. No other thread may submit to the GPU with CUDA during the call. doorbell does
// not check what the kernels do. Until doorbell_graph_free(), the graph's modules and all memory that it uses must stay, and the
// stack limit must not change. The executable graph itself may be destroyed or updated: the clone does not change. A kernel that
// faults ends CUDA's context, as it would if CUDA launched it.
// Cost: three launches by CUDA, or a few more, and milliseconds. The stream is held while CUDA writes them, each time for 20 ms
// at most. It allocates, takes CUDA's locks, and requests memory from the kernel driver. The first graph of a launch lane opens
// its channel. Threads: any. It waits for other threads' launches on its lane. Errors: DOORBELL_GRAPH for an unsupported graph,
// with the reason. DOORBELL_UNAVAILABLE without CUDA, or if CUDA's channels were not observed (doorbell_init() was called too
// late). DOORBELL_TIMEOUT if launches on the lane are still pending after ten seconds. DOORBELL_CUDA, DOORBELL_LIMIT (4,096 at a
// time on a lane), DOORBELL_DRIVER, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
int32_t doorbell_graph_create(doorbell_t *doorbell,
                              void *exec,
                              void *stream,
                              doorbell_graph_t *graph);

// Prepares a graph (CUgraph, cudaGraph_t) for launches without CUDA. doorbell instantiates it, so the program may have
// instantiated or launched it before. The graph itself may be changed or destroyed: the clone does not change. Otherwise as
// doorbell_graph_create(), but memcpy nodes may name pageable memory: the CPU makes their copies. It reads that memory in
// doorbell_graph_launch(), and writes it in the first doorbell_wait(), doorbell_poll() or doorbell_pending(), of any launch,
// that finds the launch done. So only one launch of such a graph may be pending (DOORBELL_FULL), and a stream that waits for it
// (doorbell_stream_wait()) waits only for the GPU's part. Do not touch memory that memcpy nodes write until the ticket is done.
// Cost, threads: as doorbell_graph_create(). For pageable memory, CUDA pins as many bytes. Errors: as doorbell_graph_create(),
// and DOORBELL_GRAPH also if a memcpy node writes pageable memory that another one uses.
int32_t doorbell_graph_instantiate(doorbell_t *doorbell,
                                   void *cuda_graph,
                                   void *stream,
                                   doorbell_graph_t *graph);

// Prepares a kernel (CUfunction) for launches without CUDA: a graph of one kernel, captured from `stream` and prepared as by
// doorbell_graph_create(). `stream` must not be the default stream. `grid` and `block` are three numbers each, and
// `shared_bytes` is the dynamic shared memory. `arguments` has a pointer to each argument, as cuLaunchKernel() takes them. They
// are read before this returns. CUDA launches the kernel a few times, and each launch does its work.
// Cost, threads: as doorbell_graph_create(). Errors: as doorbell_graph_create(), and DOORBELL_ARGUMENT for the default stream or
// no function.
int32_t doorbell_graph_create_kernel(doorbell_t *doorbell,
                                     void *function,
                                     const uint32_t *grid,
                                     const uint32_t *block,
                                     uint32_t shared_bytes,
                                     void **arguments,
                                     void *stream,
                                     doorbell_graph_t *graph);

// Makes another copy of a graph on a launch lane: a number from 0 to options.launch_lanes - 1, or DOORBELL_OWN_LAUNCH_LANE. It
// starts with the graph's current parameters and has its own from then on. CUDA launches no graph for this. So one thread can
// prepare a graph, and then make a copy for each thread that launches it. Launches of copies on different lanes may run at the
// same time, so the memory that the kernels write must allow this. The graph may be freed. Its modules and memory must stay, as
// for doorbell_graph_create().
// Cost: milliseconds. It allocates, and requests memory from the kernel driver. The first graph of a lane opens its channel.
// Threads: any. It waits for other threads' launches, and for pending ones on the lane: DOORBELL_TIMEOUT after ten seconds.
// Errors: DOORBELL_ARGUMENT for a lane that the session does not have. DOORBELL_GRAPH for a chain, and for a graph that names
// pageable memory. DOORBELL_TIMEOUT, DOORBELL_HANDLE, DOORBELL_LIMIT, DOORBELL_FREED, DOORBELL_UNAVAILABLE, DOORBELL_DRIVER,
// DOORBELL_CUDA, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
int32_t doorbell_graph_create_copy(doorbell_t *doorbell,
                                   doorbell_graph_t graph,
                                   uint32_t launch_lane,
                                   doorbell_graph_t *copy);

// Returns the number of a graph's kernels, and writes the bytes of parameters of the first `room` kernels. `parameter_bytes` may
// be null if `room` is 0. Kernels are counted from 0 in the order in which a launch starts them.
// Cost: microseconds. Threads: any. It waits for other threads' launches. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT,
// DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_graph_kernels(doorbell_t *doorbell,
                               doorbell_graph_t graph,
                               uint32_t *parameter_bytes,
                               size_t room,
                               size_t *count);

// Changes bytes of a kernel's parameters from the next launch on. `offset` counts bytes from the first parameter, laid out as a
// C compiler lays out a struct of them. The bytes are read before this returns. The next doorbell_graph_launch() sends them to
// the GPU, before its kernels and after all earlier launches. doorbell does not check pointers in them.
// Cost: a copy of the bytes. No lock, no allocation, no system call. Threads: any. DOORBELL_BUSY while another thread launches.
// Errors: DOORBELL_BUSY: try again. DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_graph_set_param(doorbell_t *doorbell,
                                 doorbell_graph_t graph,
                                 uint32_t kernel,
                                 uint32_t offset,
                                 const void *bytes,
                                 size_t length);

// Sets a pointer of 8 bytes in a kernel's parameters to `buffer_offset` in a buffer, from the next launch on, as
// doorbell_graph_set_param() does for bytes. CUDA's memory is pinned for the graph. When CUDA frees it, launches return
// DOORBELL_FREED until the pointer is set again. Memory from doorbell_buffer_create() stays until then, even after
// doorbell_buffer_free(). doorbell does not check which bytes the kernel touches from there on.
// Cost: microseconds, and a check with CUDA as in doorbell_transfer_create(). If the parameter was such a pointer before, it
// waits for pending launches. Threads: any. It waits for other threads' launches on the lane. Errors: as
// doorbell_graph_set_param() except DOORBELL_BUSY, and DOORBELL_FREED. DOORBELL_TIMEOUT after ten seconds, although the pointer
// was set.
int32_t doorbell_graph_set_pointer(doorbell_t *doorbell,
                                   doorbell_graph_t graph,
                                   uint32_t kernel,
                                   uint32_t offset,
                                   doorbell_buffer_t buffer,
                                   uint64_t buffer_offset);

// Launches a graph. Launches on one launch lane run one after the other, in the order of these calls. The GPU waits for the
// earlier launch, and the call does not. Launches on different launch lanes are not ordered and may run at the same time. Pass
// the ticket to doorbell_wait(), doorbell_poll() or doorbell_pending(). Only an order or a chain (doorbell_chain_create())
// orders a launch against copies and against launches on other lanes. An order or doorbell_stream_wait() orders it against
// CUDA's streams.
// Cost: one doorbell write. No lock, no allocation, no system call, unless memory was unmapped since the last launch. Threads:
// any. DOORBELL_BUSY while another thread uses the graph's launch lane. Errors: DOORBELL_BUSY and DOORBELL_FULL: try again. Up
// to 32 launches of a graph may be pending, but only one of a chain with DOORBELL_STEP_STORES or of a graph that names pageable
// memory. DOORBELL_FREED if memory that the graph copies or fills was freed. DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED,
// DOORBELL_KILLED, DOORBELL_STOPPED. For an order also those of doorbell_copy_async(). After an error, the graph was not
// launched.
int32_t doorbell_graph_launch(doorbell_t *doorbell,
                              doorbell_graph_t graph,
                              const doorbell_order_t *order,
                              doorbell_ticket_t *ticket);

// Ends a graph. Its pending launches continue. If parameters point into buffers, or memcpy nodes name pageable memory, the call
// waits for them, up to ten seconds, and then returns DOORBELL_TIMEOUT. In that case, too, the graph has ended. Its memory is
// freed when a graph is prepared or freed after those launches, or when the session is closed.
// Cost: microseconds. It frees memory. Threads: any. It waits for other threads' launches. Errors: DOORBELL_TIMEOUT,
// DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_graph_free(doorbell_t *doorbell,
                            doorbell_graph_t graph);

/* ======== Chains of copies and launches. ======== */

// doorbell_step_t.kind: a copy from one buffer to another.
#define DOORBELL_STEP_COPY 0

// doorbell_step_t.kind: a launch of a graph.
#define DOORBELL_STEP_LAUNCH 1

// doorbell_step_t.flags, for a copy: the bytes are part of the command stream, 64 KiB at most. The CPU reads them from host
// memory at each launch.
#define DOORBELL_STEP_INLINE 1

// doorbell_step_t.flags, for a copy: a copy engine makes the copy, whatever its size.
#define DOORBELL_STEP_ENGINE 2

// doorbell_step_t.flags, for a copy among the first steps of its chain: doorbell_graph_launch() itself reads the bytes from host
// memory and stores them into GPU memory, 64 KiB at most. It does this before it writes the doorbell. The stores are not ordered
// after earlier GPU work: see doorbell_chain_create().
#define DOORBELL_STEP_STORES 4

// doorbell_chain_create: launches after copies of the copy engine do not wait for a counter, either. According to NVIDIA's
// manual of the GA100, the GPU waits when a channel changes its engine. This was not observed on other GPUs yet.
#define DOORBELL_CHAIN_ENGINES 1

// doorbell_chain_create: the steps wait for a counter in host memory instead of GPU memory.
#define DOORBELL_CHAIN_HOST_COUNTER 2

// doorbell_chain_create: launches after inline data also wait for a counter. Without it they follow the data as CUDA's kernels
// follow their parameters.
#define DOORBELL_CHAIN_COUNTER 4

// doorbell_chain_create: the copies have a separate channel on a copy engine. A launch then writes two doorbells, and the copies
// do not wait until CUDA's kernels are over.
#define DOORBELL_CHAIN_BESIDE 8

// One step of a chain. Set all of it to 0, then the fields that its kind needs.
typedef struct {
  // DOORBELL_STEP_COPY or DOORBELL_STEP_LAUNCH.
  uint32_t kind;
  // 0, or for a copy DOORBELL_STEP_INLINE, DOORBELL_STEP_ENGINE or DOORBELL_STEP_STORES. 0 means inline for up to 16 KiB from
  // host memory to GPU memory, otherwise the copy engine.
  uint32_t flags;
  // For a launch.
  doorbell_graph_t graph;
  // For a copy, as are all fields that follow.
  doorbell_buffer_t to;
  uint64_t to_offset;
  doorbell_buffer_t from;
  uint64_t from_offset;
  uint64_t bytes;
} doorbell_step_t;

// Prepares copies and launches of graphs as one chain, up to 256 steps. doorbell_graph_launch() starts it with one doorbell
// write, and the GPU orders the steps: each begins when the steps before it are over. The ticket is done when the last step is.
// Data that was copied to host memory is then visible. For all other calls the chain is a graph: doorbell_graph_launch(),
// doorbell_wait(), doorbell_graph_set_param() (kernels count through all of its graphs), doorbell_graph_free(). The chain has
// its own copy of each graph, with its current parameters, so the graphs may be freed. doorbell_graph_launch() reads inline
// bytes from the buffer before it returns. The GPU reads all others, so do not change them until the ticket is done.
// CUDA's memory is pinned for the chain: when CUDA frees it, launches return DOORBELL_FREED. Memory from
// doorbell_buffer_create() stays until the chain is freed, even after doorbell_buffer_free().
// `flags` is 0 or a combination of DOORBELL_CHAIN_ENGINES, DOORBELL_CHAIN_HOST_COUNTER, DOORBELL_CHAIN_COUNTER and
// DOORBELL_CHAIN_BESIDE, but not both the first and the third. With DOORBELL_CHAIN_BESIDE the copies have a separate channel,
// and doorbell_graph_launch() writes two doorbells. All chains of a launch lane share this channel, which the first of them
// opens.
// All graphs of a chain must be of one launch lane, to which the chain then belongs. A chain without graphs belongs to the
// thread's lane.
// With DOORBELL_STEP_STORES, doorbell_graph_launch() itself stores the bytes into GPU memory, through BAR1. Only the first steps
// of a chain may be stored. While the chain's last launch is pending, doorbell_graph_launch() returns DOORBELL_FULL and has no
// effect. You must first wait for all other work that reads or writes these bytes (other graphs, copies, CUDA's own kernels),
// because doorbell does not check this. A launch with an order stores immediately, before the work that the order waits for.
// Cost: milliseconds. It allocates, and requests memory from the kernel driver. It checks registered memory with CUDA, as
// doorbell_transfer_create() does. Threads: any. It waits for other threads' launches, and for pending ones on the lane:
// DOORBELL_TIMEOUT after ten seconds.
// Errors: DOORBELL_ARGUMENT for an unknown kind or flag, or if no graph was prepared yet. DOORBELL_ARGUMENT also for an inline or
// stored copy from GPU memory, and for a stored copy into host memory. DOORBELL_LIMIT for more than 256 steps. DOORBELL_GRAPH for an impossible step: more than 64 KiB,
// stored after another step, a chain in a chain, graphs of several launch lanes (see doorbell_graph_create_copy()).
// DOORBELL_TIMEOUT, DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_LIMIT, DOORBELL_DRIVER, DOORBELL_CLOSED,
// DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
int32_t doorbell_chain_create(doorbell_t *doorbell,
                              const doorbell_step_t *steps,
                              size_t count,
                              size_t step_size,
                              uint32_t flags,
                              doorbell_graph_t *chain);

/* ======== Loops: a doorbell thread launches a chain for each frame, at ticks or as inputs arrive. ======== */

// doorbell_loop_options_t.take: inputs in order.
#define DOORBELL_TAKE_IN_ORDER 0

// doorbell_loop_options_t.take: the newest input. Older ones count as skipped.
#define DOORBELL_TAKE_NEWEST 1

// doorbell_loop_options_t.late: ticks whose period has passed are missed. For each of them an input is skipped, but never the
// newest.
#define DOORBELL_LATE_SKIP 0

// doorbell_loop_options_t.late: all ticks and inputs are launched, without a pause until the loop has caught up.
#define DOORBELL_LATE_CATCH_UP 1

// doorbell_loop_options_t.late: as DOORBELL_LATE_SKIP, but then takes the newest input.
#define DOORBELL_LATE_NEWEST 2

// doorbell_loop_options_t.flags: the loop ends if the slot for the next result has an unread one. Without it, the oldest result
// is overwritten.
#define DOORBELL_LOOP_STOP_UNREAD 1

// doorbell_loop_options_t.flags: the thread spins for results until the next tick. Without it, the thread sleeps for most of
// their usual time.
#define DOORBELL_LOOP_SPIN 2

// doorbell_loop_options_t.flags: the loop's memory and stack stay in memory (mlock).
#define DOORBELL_LOOP_LOCK_MEMORY 4

// doorbell_loop_options_t.flags: if the kernel refuses a scheduling request, doorbell_loop_create() returns an error. Without
// it, the loop runs without what was refused.
#define DOORBELL_LOOP_REQUIRED 8

// doorbell_loop_options_t.flags: no other thread of the process runs on `cpu` while the loop lives, nor do threads that they
// start meanwhile. Afterwards they may run there again.
#define DOORBELL_LOOP_ALONE 16

// doorbell_loop_options_t.scheduling: an ordinary thread.
#define DOORBELL_SCHEDULING_ORDINARY 0

// doorbell_loop_options_t.scheduling: SCHED_FIFO with `priority`.
#define DOORBELL_SCHEDULING_FIFO 1

// doorbell_loop_options_t.scheduling: SCHED_DEADLINE with `runtime_ns`, `runtime_within_ns` and `runtime_each_ns`.
#define DOORBELL_SCHEDULING_DEADLINE 2

// Options of a loop. Set all of it to 0, then `size`, then the fields that you need.
typedef struct {
  // sizeof(doorbell_loop_options_t).
  size_t size;
  // A chain from doorbell_chain_create(), or a graph, that is launched for each frame. No other thread may launch it.
  doorbell_graph_t chain;
  // Where the chain reads: host memory from doorbell_buffer_create(). 0: there are no inputs, and each tick is launched.
  doorbell_buffer_t input;
  uint64_t input_offset;
  uint64_t input_bytes;
  // Where the chain writes: host memory from doorbell_buffer_create(). 0: results have only times.
  doorbell_buffer_t output;
  uint64_t output_offset;
  uint64_t output_bytes;
  // Number of slots for inputs. 0 means 8.
  uint32_t slots;
  // Number of slots for results. 0 means 64.
  uint32_t results;
  // Time between ticks. 0: a frame is launched when its input arrives.
  uint64_t period_ns;
  // Time of tick 0, in CLOCK_MONOTONIC. 0: a period after the start.
  uint64_t first_ns;
  // For an input without a deadline, its result is late this long after its tick or its arrival. 0: at the next tick, or never
  // if there is no period.
  uint64_t deadline_ns;
  // How long the thread spins before a tick, or for the next input before it sleeps. 0 means 50 us.
  uint64_t spin_ns;
  // Maximum wait for a result. 0 means 2 s.
  uint64_t limit_ns;
  // DOORBELL_TAKE_IN_ORDER or DOORBELL_TAKE_NEWEST.
  uint32_t take;
  // DOORBELL_LATE_SKIP, DOORBELL_LATE_CATCH_UP or DOORBELL_LATE_NEWEST.
  uint32_t late;
  // 0, or a combination of DOORBELL_LOOP_STOP_UNREAD, DOORBELL_LOOP_SPIN, DOORBELL_LOOP_LOCK_MEMORY, DOORBELL_LOOP_REQUIRED
  // and DOORBELL_LOOP_ALONE.
  uint32_t flags;
  // The descriptor is signalled once for this many results. 0 means 1.
  uint32_t signal_each;
  // DOORBELL_SCHEDULING_ORDINARY, DOORBELL_SCHEDULING_FIFO or DOORBELL_SCHEDULING_DEADLINE.
  uint32_t scheduling;
  // For SCHED_FIFO, 1 to 99.
  int32_t priority;
  // The thread's CPU plus 1. 0: any.
  uint32_t cpu;
  uint32_t reserved;
  // For SCHED_DEADLINE: its runtime, deadline and period.
  uint64_t runtime_ns;
  uint64_t runtime_within_ns;
  uint64_t runtime_each_ns;
  // The thread's name, up to 15 bytes. Null: doorbell-loop.
  const char *name;
} doorbell_loop_options_t;

// The data of a frame. Times are nanoseconds of CLOCK_MONOTONIC, and 0 means no time.
typedef struct {
  // sizeof(doorbell_result_t): set it before the call.
  size_t size;
  // The tick, or the number of the input; both count from 0.
  uint64_t frame;
  // From the producer, as is `tag`.
  uint64_t sequence;
  uint64_t tag;
  // Time of the tick. Without a period, the time when the input was put.
  uint64_t due_ns;
  uint64_t put_ns;
  uint64_t launched_ns;
  uint64_t done_ns;
  uint64_t deadline_ns;
  // Inputs that were skipped since the result before this.
  uint64_t skipped;
  // Not launched, because its deadline had passed.
  bool refused;
  // Done after its deadline.
  bool late;
} doorbell_result_t;

// Counts and times of a loop so far. Each figure is right by itself, but two of them may be a frame apart.
typedef struct {
  // sizeof(doorbell_loop_statistics_t): set it before the call.
  size_t size;
  // Frames that were launched and have a result.
  uint64_t frames;
  // Ticks that passed without a launch.
  uint64_t missed;
  // Results after their deadline.
  uint64_t late;
  // Inputs that were not launched: overtaken by newer ones, or too late.
  uint64_t skipped;
  // Ticks without an input.
  uint64_t starved;
  // Results that overwrote an unread one.
  uint64_t overruns;
  // Launches that found another thread launching, and were tried again.
  uint64_t busy;
  // From the tick or the input until the result was seen, in nanoseconds.
  uint64_t done_p50_ns;
  uint64_t done_p99_ns;
  uint64_t done_p999_ns;
  uint64_t done_max_ns;
  // How much later than requested the thread woke up, in nanoseconds.
  uint64_t wake_p50_ns;
  uint64_t wake_p99_ns;
  uint64_t wake_p999_ns;
  uint64_t wake_max_ns;
  // 1 while it runs, 2 when it has ended.
  uint32_t state;
  // Why it has ended: 0 not ended, 1 stopped by the program, 2 results not read, 3 channel killed, 4 channel stopped, 5 memory
  // freed, 6 session freed, 7 chain freed, 8 fork's child, 9 result not in time, 10 launch refused, 11 error in doorbell.
  uint32_t reason;
} doorbell_loop_statistics_t;

// Starts a loop: a doorbell thread that launches a chain for each frame, waits for it, and puts its result into a ring. No CUDA
// lock and no interpreter delays it.
// Cost: milliseconds, a thread and some memory. Threads: any. Errors: DOORBELL_ARGUMENT with the reason. DOORBELL_UNAVAILABLE if
// the kernel refuses a required request. DOORBELL_HANDLE, DOORBELL_LIMIT, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_loop_create(doorbell_t *doorbell,
                             const doorbell_loop_options_t *options,
                             doorbell_loop_t *frame_loop);

// Puts an input: its bytes, the producer's number for it, when its result is due, and a tag. `deadline_ns` is in
// CLOCK_MONOTONIC, or 0 for the deadline of the options. The result returns number and tag. `number` (may be null) becomes the
// input's number, from 0.
// Cost: a copy of the bytes, and a system call if the loop sleeps. Threads: one at a time, otherwise DOORBELL_BUSY. Errors:
// DOORBELL_FULL if no slot is free. DOORBELL_UNAVAILABLE if the loop has ended. DOORBELL_ARGUMENT, DOORBELL_HANDLE,
// DOORBELL_CLOSED, DOORBELL_FREED, DOORBELL_STOPPED, DOORBELL_FORKED.
int32_t doorbell_loop_put(doorbell_t *doorbell,
                          doorbell_loop_t frame_loop,
                          const void *data,
                          size_t bytes,
                          uint64_t sequence,
                          uint64_t deadline_ns,
                          uint64_t tag,
                          uint64_t *number);

// Takes the next result, if there is one, which `there` reports. Copies as many of its bytes to `data` (may be null) as fit into
// `room`.
// Cost: a copy of the bytes. Threads: one at a time, otherwise DOORBELL_BUSY. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT,
// DOORBELL_FORKED.
int32_t doorbell_loop_next(doorbell_t *doorbell,
                           doorbell_loop_t frame_loop,
                           doorbell_result_t *result,
                           void *data,
                           size_t room,
                           bool *there);

// Waits until results were signalled or the loop has ended. Then take all of them.
// Cost: a system call. Threads: one at a time, otherwise DOORBELL_BUSY. Errors: DOORBELL_TIMEOUT, DOORBELL_HANDLE,
// DOORBELL_FORKED.
int32_t doorbell_loop_wait(doorbell_t *doorbell,
                           doorbell_loop_t frame_loop,
                           uint64_t timeout_ns);

// Returns a descriptor for poll, epoll and asyncio. It becomes readable when results were signalled, and stays so until
// doorbell_loop_wait() has returned. It ends with the loop.
// Cost: none. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED.
int32_t doorbell_loop_descriptor(doorbell_t *doorbell,
                                 doorbell_loop_t frame_loop,
                                 int32_t *descriptor);

// Returns the counts and times of a loop so far, and whether it runs. `text` (may be null) gets at most `room` bytes of English
// with a zero at the end: why the loop has ended, and which scheduling requests the kernel refused.
// Cost: microseconds. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT, DOORBELL_FORKED.
int32_t doorbell_loop_statistics(doorbell_t *doorbell,
                                 doorbell_loop_t frame_loop,
                                 doorbell_loop_statistics_t *statistics,
                                 char *text,
                                 size_t room);

// Stops a loop and waits until its thread has ended, a tenth of a second at most. Its results can still be taken.
// Cost: the wait. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED.
int32_t doorbell_loop_stop(doorbell_t *doorbell,
                           doorbell_loop_t frame_loop);

// Stops and ends a loop. The chain stays.
// Cost: the wait. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED.
int32_t doorbell_loop_free(doorbell_t *doorbell, doorbell_loop_t frame_loop);

/* ======== Pausing the recording of a program that runs under `doorbell record`. ======== */

// Pauses the recording of this process by `doorbell record`, for all its threads. During a pause only driver calls are recorded,
// and each operation costs a few nanoseconds more than without doorbell. The latest call decides, from any thread. `recorded`
// (may be null) reports whether the process is recorded. If it is not, the call has no effect.
// Cost: some 100 ns. Threads: any. Errors: none.
int32_t doorbell_recording_pause(bool *recorded);

// Resumes the recording of this process, for all its threads. It ends the pause of doorbell_recording_pause(), or the one with
// which `doorbell record --capture` begins. `recorded` is as there.
// Cost: some 100 ns. Threads: any. Errors: none.
int32_t doorbell_recording_resume(bool *recorded);

// Reports whether this process runs under `doorbell record`, paused or not.
// Cost: some 100 ns. Threads: any. Errors: none.
int32_t doorbell_recording_get(bool *recorded);

/* ======== Orders in one call. ======== */

// An order without waits.
static inline doorbell_order_t doorbell_order(void)
{
#ifdef __cplusplus
    doorbell_order_t order = {};
#else
    doorbell_order_t order = {0};
#endif
    order.size = sizeof order;
    return order;
}

// After submissions of the same session. The array of tickets must stay valid until the order has been used.
static inline doorbell_order_t doorbell_after(const doorbell_ticket_t *tickets, uint32_t count)
{
    doorbell_order_t order = doorbell_order();
    order.tickets = tickets;
    order.ticket_count = count;
    return order;
}

// After everything that a CUDA stream has queued when the order is used. Null is the default stream.
static inline doorbell_order_t doorbell_after_stream(void *stream)
{
    doorbell_order_t order = doorbell_order();
    order.flags = DOORBELL_ORDER_STREAM;
    order.stream = stream;
    return order;
}

// After the work that a CUDA event recorded last before the order is used.
static inline doorbell_order_t doorbell_after_event(void *event)
{
    doorbell_order_t order = doorbell_order();
    order.event = event;
    return order;
}

#ifdef __cplusplus
}
#endif

#endif

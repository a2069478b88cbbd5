/* doorbell.h: copies between host and GPU memory, and launches of CUDA graphs, that any thread may submit.
 *
 *     doorbell_init();                                    before the first call of CUDA
 *     doorbell_create(NULL, &doorbell);                   a session: a GPU, and channels of doorbell's own on it
 *     doorbell_buffer_register(doorbell, memory, bytes, &buffer);
 *     doorbell_copy_async(doorbell, to, 0, from, 0, bytes, NULL, &ticket);
 *     doorbell_wait(doorbell, ticket, DOORBELL_FOREVER);
 *     doorbell_free(doorbell);
 *
 * Names: _create makes something, _free ends it, _async submits and gives a ticket, _wait waits for that, _poll looks.
 * Every function that can fail answers a code: 0 (DOORBELL_OK), or what went wrong. doorbell_error_text() says what a code means,
 * doorbell_error_detail() what was wrong in this thread's last failed call. Handles are numbers: a stale or wrong one is DOORBELL_HANDLE,
 * never a crash. A null pointer for an answer is DOORBELL_ARGUMENT. Functions may be called from any thread, unless they say otherwise.
 *
 * Structs that programs fill begin with their size, and arrays are passed with the size of an element, so that both can grow: an older program
 * works with a newer library. With an older library it is an error to set what that does not know.
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

// No limit to a wait.
#define DOORBELL_FOREVER UINT64_MAX

// doorbell_order_t.flags: wait for all that `stream` has queued now. Without this flag `stream` is not looked at, because null is the default stream.
#define DOORBELL_ORDER_STREAM 1

// doorbell_order_t.flags, with DOORBELL_ORDER_STREAM: what is put into `stream` after this call waits for the submission, as after doorbell_stream_wait(). So the submission is
// at this place in the stream. Where the call is an error and the ticket is not 0, it was submitted, and the stream does not wait: wait for the ticket.
#define DOORBELL_ORDER_STREAM_WAITS 2

// A session: a GPU, doorbell's channels on it, and all handles that belong to it. A process may have several, on one GPU or on many.
// The pointer is never followed by programs. One that was freed, or that never was one, is an error and no crash.
typedef struct doorbell_t doorbell_t;

// Memory that copies may name. 0 is never one.
typedef uint64_t doorbell_buffer_t;

// A copy that is ready to go. 0 is never one.
typedef uint64_t doorbell_transfer_t;

// A submission, to be waited for. It needs no release. 0 is never one.
typedef uint64_t doorbell_ticket_t;

// A mailbox of a running kernel. 0 is never one.
typedef uint64_t doorbell_message_t;

// Frames that take turns. 0 is never one.
typedef uint64_t doorbell_ring_t;

// A CUDA graph, or a chain, that is ready to be launched. 0 is never one.
typedef uint64_t doorbell_graph_t;

// A CUDA graph that is being learnt. 0 is never one.
typedef uint64_t doorbell_learner_t;

// Submissions that are waited for together. 0 is never one.
typedef uint64_t doorbell_queue_t;

// A thread that launches a chain for each frame. 0 is never one.
typedef uint64_t doorbell_loop_t;

// What a submission waits for on the GPU. Every function that submits takes one, or null for nothing. Set all of it to 0, then
// size, then what is wanted. What is submitted on the same lane later waits, too.
typedef struct {
  // sizeof(doorbell_order_t).
  size_t size;
  // 0, DOORBELL_ORDER_STREAM, or that and DOORBELL_ORDER_STREAM_WAITS.
  uint32_t flags;
  // How many tickets there are, up to 64.
  uint32_t ticket_count;
  // Submissions of the same session. If the lane of one dies before it is done, what waits does not run: it is DOORBELL_STOPPED.
  const doorbell_ticket_t *tickets;
  // A CUDA stream (CUstream, cudaStream_t). The call writes a word into the stream by CUDA, and takes CUDA's locks for that. A stream that has nothing to do
  // is not waited for: then the call costs a query of CUDA's.
  void *stream;
  // A CUDA event (CUevent, cudaEvent_t), or null. Two calls of CUDA's. Events are waited for one after the other.
  void *event;
  // doorbell_copy_batch_async() alone: a buffer with a word of 32 bits, or 0. The copies begin when the word has come to `wait_value`,
  // counting up and wrapping.
  doorbell_buffer_t wait_buffer;
  // A multiple of 4.
  uint64_t wait_offset;
  // doorbell_copy_batch_async() alone: a buffer with a word of 32 bits, or 0. It becomes `signal_value` when all copies are there.
  doorbell_buffer_t signal_buffer;
  // A multiple of 4.
  uint64_t signal_offset;
  uint32_t wait_value;
  uint32_t signal_value;
} doorbell_order_t;

/* ======== Codes of errors. ======== */

// Done.
#define DOORBELL_OK 0

// The session was freed.
#define DOORBELL_CLOSED 1

// A forked child has no session, and cannot open one.
#define DOORBELL_FORKED 2

// No such handle: freed, of another kind or another session, or never one.
#define DOORBELL_HANDLE 3

// The memory behind a buffer was freed, or given to another allocation.
#define DOORBELL_FREED 4

// An offset or length lies outside of a buffer.
#define DOORBELL_OUTSIDE 5

// Another thread submits on this lane at this moment. Nothing was submitted; it may be tried again.
#define DOORBELL_BUSY 6

// Too many submissions are under way. Nothing was submitted; it may be tried again when one is done.
#define DOORBELL_FULL 7

// The producer has come round a ring: its next frame is still under way.
#define DOORBELL_OVERRUN 8

// More of something than there may be at a time.
#define DOORBELL_LIMIT 9

// An argument is wrong: a null pointer, no bytes, an unknown flag.
#define DOORBELL_ARGUMENT 10

// Not done within the time that was given.
#define DOORBELL_TIMEOUT 11

// The channel was killed by an error of the GPU's (Xid): free the session.
#define DOORBELL_KILLED 12

// The channel was stopped, because memory was freed under a copy that did not end, or because a channel that it waited for died:
// free the session.
#define DOORBELL_STOPPED 13

// The memory cannot be pinned.
#define DOORBELL_NOT_PINNABLE 14

// Not possible on this machine, or not in this order.
#define DOORBELL_UNAVAILABLE 15

// The GPU's kernel driver refused.
#define DOORBELL_DRIVER 16

// CUDA refused.
#define DOORBELL_CUDA 17

// A defect of doorbell's: please report it with the detail.
#define DOORBELL_PANIC 18

// The graph has something that doorbell does not launch, or cannot be read: the detail says what.
#define DOORBELL_GRAPH 19

// What a code means, in English. Never null, for any number; the text lives for ever.
// Cost: none. Threads: any.
const char *doorbell_error_text(int32_t code);

/* ======== What was wrong in a thread's last failed call, in a buffer of the thread's own: nothing is allocated to say it. ======== */

// What was wrong in this thread's last call that failed, in English. Never null; valid until this thread's next call that
// fails. Calls that succeed do not change it. Cost: none. Threads: any, each has its own.
const char *doorbell_error_detail(void);

/* ======== Sessions: made, found by their pointer, and freed. ======== */

// doorbell_options_t.kind: beside CUDA; without CUDA on the software GPU, if it is preloaded.
#define DOORBELL_ANY 0

// doorbell_options_t.kind: beside CUDA.
#define DOORBELL_BESIDE_CUDA 1

// doorbell_options_t.kind: on the software GPU, which has to be preloaded.
#define DOORBELL_SOFTWARE 2

// doorbell_options_t.flags: each submission asks CUDA whether the memory is still the allocation that was registered. It finds
// frees that nothing else shows, and costs 1 us or more and CUDA's locks each time.
#define DOORBELL_CHECK 1

// doorbell_options_t.flags: follow the machine's own profile, if `doorbell calibrate` has written one: what $DOORBELL_PROFILE names,
// else where the command writes it. One that was taken elsewhere is an error.
#define DOORBELL_OWN_PROFILE 2

// Told what a session does when it is made and freed. It must not call doorbell.
typedef void (*doorbell_log_t)(void *user, const char *text);

// What a session is to be. Set all of it to 0, then size, then what is wanted.
typedef struct {
  // sizeof(doorbell_options_t).
  size_t size;
  // DOORBELL_ANY, DOORBELL_BESIDE_CUDA or DOORBELL_SOFTWARE.
  uint32_t kind;
  // CUDA's number of the GPU. The session is in the GPU's primary context.
  uint32_t gpu;
  // How many threads have a lane of their own, up to 64; 0: 8. A lane is DOORBELL_BUSY while another thread submits there, or makes or frees something
  // of that lane.
  uint32_t lanes;
  // 0, or DOORBELL_CHECK, DOORBELL_OWN_PROFILE or both.
  uint32_t flags;
  // Null, or told what happens.
  doorbell_log_t log;
  // Passed to log.
  void *log_user;
  // Null, or the file of the profile (`doorbell calibrate -o FILE`) that says which way copies go. Null without DOORBELL_OWN_PROFILE: the
  // file that $DOORBELL_PROFILE names, if it is set. An empty text: none.
  const char *profile;
} doorbell_options_t;

// The library's version, as DOORBELL_VERSION. A program that was built with the header of 1.2 works with libraries 1.2 and later of the same major version.
// Cost: none. Threads: any.
uint32_t doorbell_version(void);

// From now on CUDA's calls to the kernel driver are seen, as a session beside CUDA needs it. Call it before anything initialises
// CUDA; doorbell_create() may come later, when CUDA is at work. It loads libcuda and initialises nothing. A second call does
// nothing. Where CUDA was initialised before, this is DOORBELL_OK, too: doorbell_watching() tells, doorbell_create() then asks the kernel driver what CUDA
// has, and graphs are DOORBELL_UNAVAILABLE.
// Cost: milliseconds, once. Threads: any. Errors: DOORBELL_UNAVAILABLE where there is no libcuda.
int32_t doorbell_init(void);

// Whether CUDA's calls to the kernel driver have been seen from CUDA's start on. False: CUDA was initialised before doorbell_init().
// Cost: that of doorbell_init(), where nobody has called it. Threads: any. Errors: DOORBELL_UNAVAILABLE where there is no libcuda.
int32_t doorbell_watching(bool *from_the_start);

// Makes a session. options may be null: GPU 0, 8 lanes, and the profile that $DOORBELL_PROFILE names, if it is set. A profile that is
// no file, or was taken on another machine, is DOORBELL_UNAVAILABLE, and the detail says what is different. A process may have 64 at a time. Sessions
// share nothing: a handle of one is DOORBELL_HANDLE for another. Two libraries of a process that use doorbell make a session each.
// Cost: some milliseconds for each lane; beside CUDA it makes the GPU's primary context, if there is none. The thread's
// current context stays what it was. Threads: any. Errors: DOORBELL_UNAVAILABLE, DOORBELL_ARGUMENT, DOORBELL_LIMIT, DOORBELL_DRIVER,
// DOORBELL_CUDA.
int32_t doorbell_create(const doorbell_options_t *options,
                        doorbell_t **doorbell);

// Ends a session. What is under way is waited for, up to ten seconds; what is not done then is stopped. All its handles end.
// Null does nothing.
// Cost: some milliseconds for each lane. Threads: any; calls of others that are under way end first, later ones answer
// DOORBELL_CLOSED. Errors: DOORBELL_CLOSED, DOORBELL_HANDLE, DOORBELL_FORKED.
int32_t doorbell_free(doorbell_t *doorbell);

/* ======== Memory that copies may name. ======== */

// doorbell_buffer_create: host memory.
#define DOORBELL_HOST 0

// doorbell_buffer_create: the GPU's memory. The CPU may write it at some 20 GB/s; each read of it is a round trip over PCIe.
#define DOORBELL_VIDEO 1

// Makes `length` bytes of CUDA's memory at `pointer` (cudaMalloc, cudaHostAlloc, cudaHostRegister) nameable, until
// doorbell_buffer_free() or until CUDA frees them: copies answer DOORBELL_FREED then. With a profile that names stores or loads of the CPU, video memory of up
// to 256 MiB is mapped for them too (a descriptor, and the kernel driver's locks).
// Cost: microseconds, and CUDA's locks: it waits where another thread is in a long call of CUDA's. Threads: any. Errors:
// DOORBELL_NOT_PINNABLE with the reason, DOORBELL_UNAVAILABLE without CUDA, DOORBELL_LIMIT (65,536 at a time),
// DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_buffer_register(doorbell_t *doorbell,
                                 const void *pointer,
                                 size_t length,
                                 doorbell_buffer_t *buffer);

// Allocates memory of doorbell's own: DOORBELL_HOST or DOORBELL_VIDEO, in whole pages. Host memory is pinned, and its pages
// are there: no call of CUDA's is made for it. `pointer` may be null.
// Cost: some hundred microseconds, and the kernel driver's locks. Threads: any. Errors: DOORBELL_DRIVER, DOORBELL_LIMIT,
// DOORBELL_ARGUMENT (no bytes, or more than 16 GiB), DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_buffer_create(doorbell_t *doorbell,
                               uint32_t place,
                               size_t length,
                               doorbell_buffer_t *buffer,
                               void **pointer);

// Where a buffer is, and how long. Either pointer may be null.
// Cost: a microsecond. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_buffer_get(doorbell_t *doorbell,
                            doorbell_buffer_t buffer,
                            void **pointer,
                            uint64_t *length);

// Ends a buffer. From this call on no submission names it. The call waits for other threads' calls that use the buffer, and up to a
// second for submissions that name it. After that, lanes that still copy to or from memory of doorbell_buffer_register() are stopped; memory of
// doorbell_buffer_create() is freed when those submissions are done. Other submissions are neither waited for nor stopped.
// Cost: microseconds and the wait. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_buffer_free(doorbell_t *doorbell,
                             doorbell_buffer_t buffer);

/* ======== Copies that are written when they are submitted. ======== */

// doorbell_copy_explain: by a copy engine.
#define DOORBELL_BY_ENGINE 0

// doorbell_copy_explain: the bytes travel in the command stream.
#define DOORBELL_BY_INLINE 1

// doorbell_copy_explain: by stores of the CPU, which are there when the submission returns.
#define DOORBELL_BY_STORES 2

// doorbell_copy_explain: by loads of the CPU, which are there when the submission returns.
#define DOORBELL_BY_LOADS 3

// One piece of a batch.
typedef struct {
  doorbell_buffer_t to;
  uint64_t to_offset;
  doorbell_buffer_t from;
  uint64_t from_offset;
  uint64_t bytes;
} doorbell_piece_t;

// Copies bytes from one buffer to another and waits until they are there; for a lane, and for room on it, too.
// Cost: that of doorbell_copy_async() and the copy. It spins for some 100 us, then yields. Threads: any. Errors: those of
// doorbell_copy_async() but DOORBELL_BUSY and DOORBELL_FULL, and DOORBELL_TIMEOUT: it may be under way then, and nobody has a ticket for it; its memory is free
// when doorbell_buffer_free() has returned. Who wants to go on waiting takes doorbell_copy_async().
int32_t doorbell_copy(doorbell_t *doorbell,
                      doorbell_buffer_t to,
                      uint64_t to_offset,
                      doorbell_buffer_t from,
                      uint64_t from_offset,
                      uint64_t bytes,
                      uint64_t timeout_ns);

// Submits a copy from one buffer to another. With a profile, sizes for which it names stores or loads of the CPU go by these, and are there when this returns:
// see doorbell_copy_explain(). All else goes to the thread's lane, or to any other where another thread submits on that
// one now; so copies end in any order, unless the program waits for the one before, or `order` says so. `order` may be null.
// Cost: a submission, whose words are written and checked: more than doorbell_transfer_async(); no lock, no allocation, no system call, unless memory was unmapped since
// or `order` names a stream or an event. (A thread's very first call may
// allocate: the loader makes room for its variables.) Threads: any. Errors: DOORBELL_BUSY and DOORBELL_FULL, after which it may be
// tried again; DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED,
// DOORBELL_KILLED, DOORBELL_STOPPED; of a stream or event DOORBELL_UNAVAILABLE without CUDA, DOORBELL_CUDA, and DOORBELL_FULL while 1,024 orders of streams are
// under way. Nothing was submitted then.
int32_t doorbell_copy_async(doorbell_t *doorbell,
                            doorbell_buffer_t to,
                            uint64_t to_offset,
                            doorbell_buffer_t from,
                            uint64_t from_offset,
                            uint64_t bytes,
                            const doorbell_order_t *order,
                            doorbell_ticket_t *ticket);

// Submits up to 4,096 copies behind one doorbell, with one ticket for all. `piece_size` is sizeof(doorbell_piece_t). They may overtake one another: none may
// need what another writes. The first says to the GPU or from it; others may go the other way, on the same copy engine. With an `order` there may be no
// pieces: the submission only waits, and signals.
// Cost: that of doorbell_copy_async(), and the words of each piece. Threads: any.
// Errors: as doorbell_copy_async(), and DOORBELL_LIMIT. None of the pieces was submitted then.
int32_t doorbell_copy_batch_async(doorbell_t *doorbell,
                                  const doorbell_piece_t *pieces,
                                  size_t count,
                                  size_t piece_size,
                                  const doorbell_order_t *order,
                                  doorbell_ticket_t *ticket);

// Which way a copy from one buffer to another goes, `prepared` (doorbell_transfer_create) or not (doorbell_copy, doorbell_copy_async), and why. `way`:
// DOORBELL_BY_ENGINE, DOORBELL_BY_INLINE, DOORBELL_BY_STORES or DOORBELL_BY_LOADS. `text` gets at most `room` bytes of English, which end with a zero.
// Either may be null. Batches of several pieces, rings and what is in an order always go by copy engines.
// Cost: microseconds; it allocates. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT (no bytes), DOORBELL_CLOSED,
// DOORBELL_FORKED.
int32_t doorbell_copy_explain(doorbell_t *doorbell,
                              doorbell_buffer_t to,
                              doorbell_buffer_t from,
                              uint64_t bytes,
                              bool prepared,
                              uint32_t *way,
                              char *text,
                              size_t room);

/* ======== Copies that are made ready once and submitted often. ======== */

// Makes a copy ready, to be submitted often: it is checked here, once, and goes the way that doorbell_copy_explain() says. It belongs to the lane of the thread that makes it.
// Cost: some hundred microseconds; it allocates, and asks the kernel driver for memory. Threads: any; it waits for the thread's
// lane. Errors: DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_ARGUMENT (no bytes, or more than 1 GiB),
// DOORBELL_LIMIT (4,096 for each lane), DOORBELL_DRIVER, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_transfer_create(doorbell_t *doorbell,
                                 doorbell_buffer_t to,
                                 uint64_t to_offset,
                                 doorbell_buffer_t from,
                                 uint64_t from_offset,
                                 uint64_t bytes,
                                 doorbell_transfer_t *transfer);

// Makes a copy of up to 64 KiB ready whose bytes are given at each submission: they travel in the command stream, and need no
// buffer. Good for parameters of a running kernel. All of these share one lane, on the graphics engine.
// Cost, threads, errors: as doorbell_transfer_create().
int32_t doorbell_transfer_create_bytes(doorbell_t *doorbell,
                                       doorbell_buffer_t to,
                                       uint64_t to_offset,
                                       uint64_t bytes,
                                       doorbell_transfer_t *transfer);

// Submits what doorbell_transfer_create() made ready. Up to 32 submissions of a transfer may be under way. `order` may be null. With an order, a transfer that the
// CPU stores, loads or reads (doorbell_copy_explain()) goes by a copy engine instead, on a lane that is free; where this is DOORBELL_FULL, later submissions
// of the lane may wait all the same.
// Cost: some 60 ns (H100 and H200) and some words for each ticket of an order, by stores or loads the whole copy; no lock, no allocation, no system call, unless an order names
// a stream or an event. Threads: any; two that submit on the same lane at the same instant
// do not wait for each other: the second gets DOORBELL_BUSY. Errors: DOORBELL_BUSY and DOORBELL_FULL, after which it may be tried
// again; DOORBELL_HANDLE, DOORBELL_FREED, DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED; of an order those of
// doorbell_copy_async(). Nothing was submitted then.
int32_t doorbell_transfer_async(doorbell_t *doorbell,
                                doorbell_transfer_t transfer,
                                const doorbell_order_t *order,
                                doorbell_ticket_t *ticket);

// As doorbell_transfer_async(), with the bytes of what doorbell_transfer_create_bytes() made ready: as many as were prepared. They are read before
// this returns.
// Cost: that of doorbell_transfer_async(), and the storing of the bytes. Threads, errors: as doorbell_transfer_async().
int32_t doorbell_transfer_bytes_async(doorbell_t *doorbell,
                                      doorbell_transfer_t transfer,
                                      const void *data,
                                      size_t bytes,
                                      const doorbell_order_t *order,
                                      doorbell_ticket_t *ticket);

// Ends a transfer. What of it is under way goes on.
// Cost: microseconds; it frees memory. Threads: any; it waits for the transfer's lane. Errors: DOORBELL_HANDLE, DOORBELL_CLOSED,
// DOORBELL_FORKED.
int32_t doorbell_transfer_free(doorbell_t *doorbell,
                               doorbell_transfer_t transfer);

/* ======== What is submitted, and when it is done. ======== */

// Waits until a submission is done: what it wrote is there then, for the CPU and for the GPU. DOORBELL_FOREVER waits without
// limit.
// Cost: it spins for some 100 us, then yields between polls. Threads: any, several at a time. Errors: DOORBELL_TIMEOUT,
// DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
int32_t doorbell_wait(doorbell_t *doorbell,
                      doorbell_ticket_t ticket,
                      uint64_t timeout_ns);

// As doorbell_wait(), and sleeps after `spin_ns`: for waits of milliseconds, which would use up a CPU. DOORBELL_FOREVER never sleeps, 0 sleeps at once.
// Cost: a thread that sleeps wakes up to look, at most 50 us or an eighth of the wait late. Threads, errors: as doorbell_wait().
int32_t doorbell_wait_sleeping(doorbell_t *doorbell,
                               doorbell_ticket_t ticket,
                               uint64_t spin_ns,
                               uint64_t timeout_ns);

// Waits until one of several submissions is done, whichever lanes they are on; `index` says which. Of several that are done it is the first.
// Cost: as doorbell_wait(), and a look at each. Threads: any. Errors: as doorbell_wait(), where none is done and one never will be; DOORBELL_ARGUMENT for none.
int32_t doorbell_wait_any(doorbell_t *doorbell,
                          const doorbell_ticket_t *tickets,
                          size_t count,
                          uint64_t timeout_ns,
                          size_t *index);

// Waits until all of several submissions are done, whichever lanes they are on.
// Cost, threads: as doorbell_wait_any(). Errors: as doorbell_wait(), as soon as one of them never will be done: doorbell_poll() says of which.
int32_t doorbell_wait_all(doorbell_t *doorbell,
                          const doorbell_ticket_t *tickets,
                          size_t count,
                          uint64_t timeout_ns);

// Whether a submission is done.
// Cost: a load, and two atomic instructions; no lock, no allocation, no system call. Threads: any. Errors: as doorbell_wait() but DOORBELL_TIMEOUT.
int32_t doorbell_poll(doorbell_t *doorbell,
                      doorbell_ticket_t ticket,
                      bool *done);

// How many submissions of the ticket's lane, up to this one, are not done: 0 when it is done.
// Cost, threads, errors: as doorbell_poll().
int32_t doorbell_pending(doorbell_t *doorbell, doorbell_ticket_t ticket, uint64_t *left);

// What is put into the CUDA stream (CUstream, cudaStream_t; null: the default stream) from now on waits for a submission: the lane writes a word behind it, and a wait for that goes
// into the stream. Of a copy by stores or loads nothing goes into the stream: it is over. If the lane dies before it has written
// the word, a thread of doorbell's writes it within a tenth of a second: the stream goes on, and the ticket answers the error.
// Cost: a submission, and a call of cuStreamWaitValue32 with CUDA's locks. Threads: any. Errors: those of doorbell_copy_async() for streams, and
// DOORBELL_BUSY while another thread submits on the lane.
int32_t doorbell_stream_wait(doorbell_t *doorbell,
                             void *stream,
                             doorbell_ticket_t ticket);

/* ======== Queues of submissions, for threads and event loops that wait for many. ======== */

// A submission that is done, or never will be.
typedef struct {
  doorbell_ticket_t ticket;
  // What was given to doorbell_queue_add().
  uint64_t user;
  // DOORBELL_OK; DOORBELL_KILLED, DOORBELL_STOPPED or DOORBELL_CLOSED where its lane ended before.
  int32_t code;
} doorbell_done_t;

// A queue for up to `size` submissions of the session at a time, 65,536 at most. Any number of threads add, take and wait.
// Cost: some memory. Threads: any. Errors: DOORBELL_ARGUMENT, DOORBELL_LIMIT (4,096 queues in a process), DOORBELL_FORKED.
int32_t doorbell_queue_create(doorbell_t *doorbell,
                              size_t size,
                              doorbell_queue_t *queue);

// Adds a submission, with a number that comes out with it.
// Cost: a lock of the queue's; with a descriptor it may wake a thread. Threads: any. Errors: DOORBELL_FULL, DOORBELL_HANDLE, DOORBELL_UNAVAILABLE, DOORBELL_CLOSED, DOORBELL_FORKED. That its lane is
// dead is no error here: it comes out with that.
int32_t doorbell_queue_add(doorbell_t *doorbell,
                           doorbell_queue_t queue,
                           doorbell_ticket_t ticket,
                           uint64_t user);

// Takes what is done, up to `room`, in the order in which it was added; `count`: how many. `done_size` is sizeof(doorbell_done_t). Never waits.
// Cost: a lock of the queue's, and a look at what is under way. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT, DOORBELL_FORKED.
int32_t doorbell_queue_poll(doorbell_t *doorbell,
                            doorbell_queue_t queue,
                            doorbell_done_t *done,
                            size_t room,
                            size_t done_size,
                            size_t *count);

// Waits until something can be taken. It sleeps between looks.
// Cost: as doorbell_wait_sleeping(). Threads: any, several at a time. Errors: DOORBELL_TIMEOUT, DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_queue_wait(doorbell_t *doorbell,
                            doorbell_queue_t queue,
                            uint64_t timeout_ns);

// Takes a submission out that was not taken yet; `was_there` (may be null) says whether it was there. It goes on: nothing ends a submission but its lane.
// Cost: a lock of the queue's. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED.
int32_t doorbell_queue_remove(doorbell_t *doorbell,
                              doorbell_queue_t queue,
                              doorbell_ticket_t ticket,
                              bool *was_there);

// A descriptor for poll, epoll and asyncio: readable when something can be taken, until doorbell_queue_poll() has left nothing that is done. Do not read from it or close it:
// it goes with the queue. The first one of a session starts a thread that looks at what is in such queues.
// Cost: a system call. Threads: any. Errors: DOORBELL_UNAVAILABLE, DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_queue_descriptor(doorbell_t *doorbell,
                                  doorbell_queue_t queue,
                                  int32_t *descriptor);

// Ends a queue, and the waits of threads that wait there. What was in it goes on.
// Cost: microseconds. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED.
int32_t doorbell_queue_free(doorbell_t *doorbell, doorbell_queue_t queue);

/* ======== Frames that take turns. ======== */

// A frame of a ring, for the producer to fill.
typedef struct {
  // sizeof(doorbell_frame_t): set it before the call.
  size_t size;
  // Where it is in the source buffer.
  uint64_t offset;
  // Its address; null in CUDA's memory on the GPU, which the CPU does not see: kernels fill it.
  void *pointer;
  // Which of the ring's.
  uint32_t index;
} doorbell_frame_t;

// A ring of 2 to 1,024 frames of `bytes` each, one behind the other in both buffers from the offsets on: the producer fills the
// next one while the copy of the one before is under way. It goes by the copy engine; up to 32 frames may be under way.
// Cost: that of doorbell_transfer_create(). Threads: any may make it; one at a time uses it. Errors: as
// doorbell_transfer_create().
int32_t doorbell_ring_create(doorbell_t *doorbell,
                             doorbell_buffer_t to,
                             uint64_t to_offset,
                             doorbell_buffer_t from,
                             uint64_t from_offset,
                             uint64_t bytes,
                             uint32_t frames,
                             doorbell_ring_t *ring);

// The next frame, for the producer to fill. Asked again before doorbell_ring_async() it is the same one.
// Cost: a few loads and atomic instructions; no lock, no allocation, no system call. Threads: one at a time. Errors: DOORBELL_OVERRUN while its last copy is
// under way, DOORBELL_BUSY, DOORBELL_HANDLE, DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED,
// DOORBELL_STOPPED.
int32_t doorbell_ring_next(doorbell_t *doorbell,
                           doorbell_ring_t ring,
                           doorbell_frame_t *frame);

// Submits the copy of the frame that doorbell_ring_next() gave, and goes on to the next. `order` may be null.
// Cost: that of doorbell_transfer_async(). Threads: one at a time. Errors: DOORBELL_ARGUMENT without a frame, and as doorbell_transfer_async(); the
// frame stays the next then.
int32_t doorbell_ring_async(doorbell_t *doorbell,
                            doorbell_ring_t ring,
                            const doorbell_order_t *order,
                            doorbell_ticket_t *ticket);

// Ends a ring. What of it is under way goes on.
// Cost, threads, errors: as doorbell_transfer_free().
int32_t doorbell_ring_free(doorbell_t *doorbell, doorbell_ring_t ring);

/* ======== Messages to a running kernel. ======== */

// Most bytes of a message, and of its answer.
#define DOORBELL_MESSAGE_BYTES 56

// A mailbox for messages to a running kernel: 64 bytes of video memory, and 64 bytes of host memory for its answers, both at multiples of 64.
// Both are set to 0; launch the kernel then. A message is one line, written as a whole: 56 bytes (those that are not given are 0), a number, and a
// sum. The words w[0] to w[14] (bytes and number) are summed up, modulo 2^32, as w[i] * (2 * i + 1) * 0x9e3779b1; w[15] is that sum. A kernel looks at the
// line (four loads of 16 bytes, ld.relaxed.sys), takes it when the number is not the last one and the sum is right, and answers with a
// line of the same form and number (st.relaxed.sys). The newest message counts: one that was not taken is written over. A message
// is no copy, and no copy is ordered behind it.
// Cost: that of doorbell_transfer_create(), and one descriptor; a write to the GPU's memory and a load from it. Threads: any; it waits for the thread's
// lane. Errors: DOORBELL_ARGUMENT for other memory or another place, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_LIMIT (256 for each lane),
// DOORBELL_DRIVER where the mailbox cannot be mapped, DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_message_create(doorbell_t *doorbell,
                                doorbell_buffer_t mailbox,
                                uint64_t mailbox_offset,
                                doorbell_buffer_t answers,
                                uint64_t answers_offset,
                                doorbell_message_t *message);

// Sends up to 56 bytes. Messages are numbered 1, 2, ..; `number` may be null.
// Cost: one store of 64 bytes to the GPU; no lock, no allocation, no system call. Threads: any; DOORBELL_BUSY while another submits on the lane.
// Errors: DOORBELL_BUSY and DOORBELL_FULL, after which it may be tried again; DOORBELL_ARGUMENT, DOORBELL_FREED, DOORBELL_HANDLE,
// DOORBELL_CLOSED, DOORBELL_FORKED. Nothing was sent.
int32_t doorbell_message_send(doorbell_t *doorbell,
                              doorbell_message_t message,
                              const void *data,
                              size_t bytes,
                              uint32_t *number);

// Waits until the kernel has answered the message of this number or a later one, and gives the answer's 56 bytes; `answer` may be null. A
// timeout of 0 looks once.
// Cost: it reads host memory, spins for some 100 us, then yields; no lock, no allocation. Threads: any. Errors: DOORBELL_TIMEOUT,
// DOORBELL_FREED, DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_message_wait(doorbell_t *doorbell,
                              doorbell_message_t message,
                              uint32_t number,
                              void *answer,
                              uint64_t timeout_ns);

// Ends a mailbox. The kernel is told nothing: send it what it ends by first.
// Cost, threads, errors: as doorbell_transfer_free().
int32_t doorbell_message_free(doorbell_t *doorbell, doorbell_message_t message);

/* ======== The functions that launch CUDA graphs. ======== */

// Makes an instantiated CUDA graph (CUgraphExec, cudaGraphExec_t) ready to be launched past CUDA. CUDA launches it in
// `stream` a few times (it does its work then), the words of these launches are read, and what the graph has on the
// GPU is cloned. Call doorbell_init() before CUDA is initialised, and this before the graph is launched for the first
// time: that launch uploads it. No other thread may submit to the GPU by CUDA meanwhile. What kernels do is not looked
// at: to launch a graph is to trust it. Until doorbell_graph_free(), the graph's modules and all memory that it uses
// must stay, and the stack limit must not be changed. The executable graph itself may be destroyed or updated: the
// clone stays what it was. A kernel that faults ends CUDA's context, as it would if CUDA launched it.
// Cost: three launches by CUDA, or a few more, and milliseconds (the stream is held while CUDA writes them, 20 ms at
// most each time); it allocates, takes CUDA's locks, and asks the kernel driver for
// memory; the first graph opens a channel. Threads: any; it waits for the launches of others. Errors: DOORBELL_GRAPH
// where the graph has something that doorbell does not launch, with its name; DOORBELL_UNAVAILABLE without CUDA, or
// where its channels were not seen (doorbell_init() came too late); DOORBELL_CUDA, DOORBELL_LIMIT (4,096 at a time),
// DOORBELL_DRIVER, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_graph_create(doorbell_t *doorbell,
                              void *exec,
                              void *stream,
                              doorbell_graph_t *graph);

// Makes a graph (CUgraph, cudaGraph_t) ready to be launched past CUDA: doorbell instantiates it, so it does not matter
// whether the program has, or has launched that. The graph itself may be changed or destroyed: the clone stays what it was.
// For the rest as doorbell_graph_create(), but memcpy nodes may name pageable memory: the CPU copies in their place, out
// of it in doorbell_graph_launch(), and into it in the first doorbell_wait(), doorbell_poll() or doorbell_pending() of any
// launch's ticket that finds it over. So one launch of such a graph may be under way (DOORBELL_FULL), and what a stream
// is held for (doorbell_stream_wait()) is the GPU's part. Leave what memcpy nodes write alone until the ticket is done.
// Cost, threads: as doorbell_graph_create(); for pageable memory CUDA pins as many bytes. Errors: the same;
// DOORBELL_GRAPH also where a memcpy node writes pageable memory that another one uses.
int32_t doorbell_graph_instantiate(doorbell_t *doorbell,
                                   void *cuda_graph,
                                   void *stream,
                                   doorbell_graph_t *graph);

// Begins to learn an instantiated CUDA graph (CUgraphExec, cudaGraphExec_t) from launches that the program wants anyway: with doorbell_learner_launch() in the place of
// cudaGraphLaunch(). Each launch does the graph's work once, so this is the way for graphs whose work must not be done more often than the program asks for.
// Nothing is launched here. The executable graph lives until doorbell_learner_free(), and is launched by the learner alone until then. For the rest as doorbell_graph_create().
// Cost: microseconds. Threads: any. Errors: DOORBELL_LIMIT, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_learner_create(doorbell_t *doorbell,
                                void *exec,
                                doorbell_learner_t *learner);

// Has CUDA launch the graph once in `stream` (null: the default stream), behind what is queued there, and waits for it. `launched`: whether the graph's work was done; where it was not, launch the graph by CUDA.
// `graph`: 0 until the graph is learnt, after three launches or a few more; then the graph for doorbell_graph_launch(). After an error more launches teach nothing: let CUDA launch the graph from then on.
// No other thread may submit to the GPU by CUDA meanwhile: such a launch teaches nothing, and one more is needed.
// Cost: a launch by CUDA, and milliseconds; the first graph opens a channel. Threads: any; it waits for the launches of others. Errors: those of doorbell_graph_create().
int32_t doorbell_learner_launch(doorbell_t *doorbell,
                                doorbell_learner_t learner,
                                void *stream,
                                bool *launched,
                                doorbell_graph_t *graph);

// Ends a learner. The graph that it has learnt stays.
// Cost: microseconds. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_learner_free(doorbell_t *doorbell, doorbell_learner_t learner);

// Makes a kernel (CUfunction) ready to be launched past CUDA: a graph of it alone is captured from `stream`, which is not
// the default one, and prepared as doorbell_graph_create() does. `grid` and `block` are three numbers each, `shared_bytes`
// is dynamic shared memory, `arguments` has a pointer to each argument, as cuLaunchKernel() takes them; they are read
// before this returns. CUDA launches the kernel a few times, and it does its work then.
// Cost, threads: as doorbell_graph_create(). Errors: the same; DOORBELL_ARGUMENT for the default stream or no function.
int32_t doorbell_graph_create_kernel(doorbell_t *doorbell,
                                     void *function,
                                     const uint32_t *grid,
                                     const uint32_t *block,
                                     uint32_t shared_bytes,
                                     void **arguments,
                                     void *stream,
                                     doorbell_graph_t *graph);

// How many kernels a graph has, and how many bytes of parameters each: those of the first `room` kernels are written.
// `parameter_bytes` may be null with a room of 0. Kernels are counted from 0 in the order in which a launch starts
// them.
// Cost: microseconds. Threads: any; it waits for the launches of others. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT,
// DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_graph_kernels(doorbell_t *doorbell,
                               doorbell_graph_t graph,
                               uint32_t *parameter_bytes,
                               size_t room,
                               size_t *count);

// Changes bytes of a kernel's parameters, from the next launch on: `offset` counts from the first one, laid out as a C
// compiler lays out a struct of them. The bytes are read before this returns; they go to the GPU with the next
// doorbell_graph_launch(), ahead of the kernels and behind the launches before it. What is a pointer is not looked at.
// Cost: a copy of the bytes; no lock, no allocation, no system call. Threads: any; DOORBELL_BUSY while another
// launches. Errors: DOORBELL_BUSY, after which it may be tried again; DOORBELL_HANDLE, DOORBELL_OUTSIDE,
// DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_graph_set_param(doorbell_t *doorbell,
                                 doorbell_graph_t graph,
                                 uint32_t kernel,
                                 uint32_t offset,
                                 const void *bytes,
                                 size_t length);

// As doorbell_graph_set_param(), of a pointer of 8 bytes: it points to `buffer_offset` in a buffer from the next launch on.
// Memory of CUDA's is pinned for the graph: when CUDA frees it, launches answer DOORBELL_FREED until the pointer is set
// anew. Memory of doorbell_buffer_create() stays until then, also after doorbell_buffer_free(). What the kernel touches from there on is not
// looked at.
// Cost: microseconds; where the parameter was such a pointer before, it waits for launches that are under way. Threads:
// any; it waits for the launches of others. Errors: as doorbell_graph_set_param() but DOORBELL_BUSY; DOORBELL_FREED,
// DOORBELL_TIMEOUT after ten seconds: the pointer was set.
int32_t doorbell_graph_set_pointer(doorbell_t *doorbell,
                                   doorbell_graph_t graph,
                                   uint32_t kernel,
                                   uint32_t offset,
                                   doorbell_buffer_t buffer,
                                   uint64_t buffer_offset);

// Launches a graph. Launches of all graphs run one after the other, in the order of these calls: the GPU waits, and
// this call never. doorbell_wait(), doorbell_poll() and doorbell_pending() take the ticket. Nothing orders a launch
// against copies but doorbell_launch_after(), doorbell_submit_after(), and chains (doorbell_chain_create()).
// an order and doorbell_stream_wait() order it against streams of CUDA's.
// Cost: one doorbell; no lock, no allocation, no system call, unless memory was unmapped since. Threads: any;
// DOORBELL_BUSY while another launches. Errors: DOORBELL_BUSY and DOORBELL_FULL (32 launches of a graph may be under
// way, and one of a chain with DOORBELL_STEP_STORES or of a graph that names pageable memory), after which it may be tried again; DOORBELL_FREED where memory that the graph copies or fills was freed;
// DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED. Nothing was launched then.
int32_t doorbell_graph_launch(doorbell_t *doorbell,
                              doorbell_graph_t graph,
                              const doorbell_order_t *order,
                              doorbell_ticket_t *ticket);

// Ends a graph. Launches of it that are under way go on; where parameters point into buffers, they are waited for, up to ten
// seconds. After that the call is DOORBELL_TIMEOUT: the graph has ended, and its memory is freed when a graph is prepared or freed
// after those launches, or when the session is closed.
// Cost: microseconds; it frees memory. Threads: any; it waits for the launches of others. Errors: DOORBELL_TIMEOUT,
// DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
int32_t doorbell_graph_free(doorbell_t *doorbell,
                            doorbell_graph_t graph);

/* ======== Copies and launches in one chain. ======== */

// doorbell_step_t.kind: bytes from one buffer to another.
#define DOORBELL_STEP_COPY 0

// doorbell_step_t.kind: a launch of a graph.
#define DOORBELL_STEP_LAUNCH 1

// doorbell_step_t.flags, of a copy: the bytes travel in the command stream, 64 KiB at most; the CPU reads them from host memory at each launch.
#define DOORBELL_STEP_INLINE 1

// doorbell_step_t.flags, of a copy: by the copy engine, whatever its size.
#define DOORBELL_STEP_ENGINE 2

// doorbell_step_t.flags, of a copy that is among the first steps of its chain: doorbell_graph_launch() reads the bytes from host memory and stores them into the
// GPU's memory itself, in front of the doorbell, 64 KiB at most. The stores wait for nobody: see doorbell_chain_create().
#define DOORBELL_STEP_STORES 4

// doorbell_chain_create: launches behind copies of the copy engine wait for no counter, either. The GPU waits when a channel changes its engine, as
// GA100's manual says; not seen on other GPUs yet.
#define DOORBELL_CHAIN_ENGINES 1

// doorbell_chain_create: the steps wait for a counter in host memory, not in the GPU's.
#define DOORBELL_CHAIN_HOST_COUNTER 2

// doorbell_chain_create: launches behind inline data wait for a counter, too. Without it they follow as CUDA's kernels follow their parameters.
#define DOORBELL_CHAIN_COUNTER 4

// doorbell_chain_create: the copies have a copy engine's channel of their own. Two doorbells, and no wait until CUDA's kernels are over.
#define DOORBELL_CHAIN_BESIDE 8

// One step of a chain: set all of it to 0, then what its kind needs.
typedef struct {
  // DOORBELL_STEP_COPY or DOORBELL_STEP_LAUNCH.
  uint32_t kind;
  // 0, or of a copy DOORBELL_STEP_INLINE, DOORBELL_STEP_ENGINE or DOORBELL_STEP_STORES. 0 is inline up to 16 KiB from host memory to the GPU's, else the copy engine.
  uint32_t flags;
  // Of a launch.
  doorbell_graph_t graph;
  // The others are of a copy.
  doorbell_buffer_t to;
  uint64_t to_offset;
  doorbell_buffer_t from;
  uint64_t from_offset;
  uint64_t bytes;
} doorbell_step_t;

// Makes copies and launches of graphs ready as one chain, up to 256 steps: doorbell_graph_launch() starts it with one doorbell, the
// GPU orders the steps, and the ticket is done when the last one is: what was copied to host memory is there then. Each step
// begins when those before it are over. The chain is a graph to all other calls: doorbell_graph_launch(), doorbell_wait(),
// doorbell_graph_set_param() (kernels count through all of its graphs), doorbell_graph_free(). Each graph in it is cloned once
// more, with the parameters that it has now, and may be freed. The bytes that go inline are read from the buffer by
// doorbell_graph_launch(), before it returns; the others by the GPU, so leave them until the ticket is done.
// Memory of CUDA's is pinned for the chain: when CUDA frees it, launches answer DOORBELL_FREED. Memory of
// doorbell_buffer_create() stays until the chain is freed, also after doorbell_buffer_free().
// `flags`: 0, or of DOORBELL_CHAIN_ENGINES, DOORBELL_CHAIN_HOST_COUNTER, DOORBELL_CHAIN_COUNTER and DOORBELL_CHAIN_BESIDE; not both the first
// and the third. With DOORBELL_CHAIN_BESIDE the copies have a channel of their own, one for all chains of the session, which the first such
// chain opens: doorbell_graph_launch() rings two doorbells.
// With DOORBELL_STEP_STORES doorbell_graph_launch() stores the bytes into the GPU's memory itself, through BAR1. Only the first steps of a chain may be
// stored. While the last launch of the chain is not over, doorbell_graph_launch() answers DOORBELL_FULL, and nothing is stored or launched. Whatever
// else reads or writes these bytes (other graphs, copies, CUDA's own kernels) must be over, too: nobody looks after that, and
// a launch with an order stores at once, before what they wait for.
// Cost: milliseconds; it allocates, and asks the kernel driver for memory. Threads: any; it waits for the launches of others.
// Errors: DOORBELL_ARGUMENT (no graph was prepared yet; an unknown kind or flag; inline or stored from the GPU's memory, stored into host
// memory), DOORBELL_GRAPH for a step that cannot be (more than 64 KiB, stored behind another step, a chain in a chain), DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_LIMIT, DOORBELL_DRIVER, DOORBELL_CLOSED,
// DOORBELL_FORKED.
int32_t doorbell_chain_create(doorbell_t *doorbell,
                              const doorbell_step_t *steps,
                              size_t count,
                              size_t step_size,
                              uint32_t flags,
                              doorbell_graph_t *chain);

/* ======== Loops: a thread of doorbell's launches a chain for each frame, by time or as frames come. ======== */

// doorbell_loop_options_t.take: one input after the other.
#define DOORBELL_TAKE_IN_ORDER 0

// doorbell_loop_options_t.take: the newest input; older ones count as skipped.
#define DOORBELL_TAKE_NEWEST 1

// doorbell_loop_options_t.late: ticks whose time is over are missed, and an input each is skipped as long as a newer one is there.
#define DOORBELL_LATE_SKIP 0

// doorbell_loop_options_t.late: nothing is left out; the loop launches without a pause until it has caught up.
#define DOORBELL_LATE_CATCH_UP 1

// doorbell_loop_options_t.late: as DOORBELL_LATE_SKIP, and the newest input is taken then.
#define DOORBELL_LATE_NEWEST 2

// doorbell_loop_options_t.flags: where nobody has read a result whose place is wanted, the loop ends. Without it the oldest is written over.
#define DOORBELL_LOOP_STOP_UNREAD 1

// doorbell_loop_options_t.flags: the thread spins for results until the next tick. Without it it sleeps for most of the time that they take.
#define DOORBELL_LOOP_SPIN 2

// doorbell_loop_options_t.flags: the loop's memory and stack stay in memory (mlock).
#define DOORBELL_LOOP_LOCK_MEMORY 4

// doorbell_loop_options_t.flags: what the kernel refuses of the scheduling is an error of doorbell_loop_create(). Without it the loop runs without.
#define DOORBELL_LOOP_REQUIRED 8

// doorbell_loop_options_t.scheduling: an ordinary thread.
#define DOORBELL_SCHEDULING_ORDINARY 0

// doorbell_loop_options_t.scheduling: SCHED_FIFO with `priority`.
#define DOORBELL_SCHEDULING_FIFO 1

// doorbell_loop_options_t.scheduling: SCHED_DEADLINE with `runtime_ns`, `runtime_within_ns` and `runtime_each_ns`.
#define DOORBELL_SCHEDULING_DEADLINE 2

// What a loop is to do. Set all of it to 0, then size, then what is wanted.
typedef struct {
  // sizeof(doorbell_loop_options_t).
  size_t size;
  // What is launched for each frame, of doorbell_chain_create() or a graph. Nobody else launches it.
  doorbell_graph_t chain;
  // Where the chain reads: host memory of doorbell_buffer_create(). 0: there are no inputs, and each tick is launched.
  doorbell_buffer_t input;
  uint64_t input_offset;
  uint64_t input_bytes;
  // Where the chain writes: host memory of doorbell_buffer_create(). 0: results have times alone.
  doorbell_buffer_t output;
  uint64_t output_offset;
  uint64_t output_bytes;
  // How many inputs there is room for; 0: 8.
  uint32_t slots;
  // How many results there is room for; 0: 64.
  uint32_t results;
  // Ticks are so far apart; 0: a frame is launched when its input comes.
  uint64_t period_ns;
  // When tick 0 is, of CLOCK_MONOTONIC; 0: a period after the start.
  uint64_t first_ns;
  // When the result of an input without a deadline is late: so long after its tick or its input; 0: at the next tick, and as frames come never.
  uint64_t deadline_ns;
  // The thread spins so long before a tick, or for the next input before it sleeps; 0: 50 us.
  uint64_t spin_ns;
  // The longest that a result is waited for; 0: 2 s.
  uint64_t limit_ns;
  // DOORBELL_TAKE_IN_ORDER or DOORBELL_TAKE_NEWEST.
  uint32_t take;
  // DOORBELL_LATE_SKIP, DOORBELL_LATE_CATCH_UP or DOORBELL_LATE_NEWEST.
  uint32_t late;
  // 0, or of DOORBELL_LOOP_STOP_UNREAD, DOORBELL_LOOP_SPIN, DOORBELL_LOOP_LOCK_MEMORY and DOORBELL_LOOP_REQUIRED.
  uint32_t flags;
  // The descriptor is signalled for each so many results; 0: for each.
  uint32_t signal_each;
  // DOORBELL_SCHEDULING_ORDINARY, DOORBELL_SCHEDULING_FIFO or DOORBELL_SCHEDULING_DEADLINE.
  uint32_t scheduling;
  // Of SCHED_FIFO, 1 to 99.
  int32_t priority;
  // The thread's CPU plus 1; 0: any.
  uint32_t cpu;
  uint32_t reserved;
  // Of SCHED_DEADLINE: its runtime, deadline and period.
  uint64_t runtime_ns;
  uint64_t runtime_within_ns;
  uint64_t runtime_each_ns;
  // The thread's name, up to 15 bytes; null: doorbell-loop.
  const char *name;
} doorbell_loop_options_t;

// What is said of a frame. Times are nanoseconds of CLOCK_MONOTONIC; 0 is no time.
typedef struct {
  // sizeof(doorbell_result_t): set it before the call.
  size_t size;
  // The tick, or the number of the input; both count from 0.
  uint64_t frame;
  // The producer's.
  uint64_t sequence;
  uint64_t tag;
  // When the tick was; as frames come: when the input was put.
  uint64_t due_ns;
  uint64_t put_ns;
  uint64_t launched_ns;
  uint64_t done_ns;
  uint64_t deadline_ns;
  // Inputs that were skipped since the result before this.
  uint64_t skipped;
  // It was not launched: its deadline had passed.
  bool refused;
  // Done after its deadline.
  bool late;
} doorbell_result_t;

// What a loop has done so far. Each figure is right by itself; two of them may be a frame apart.
typedef struct {
  // sizeof(doorbell_loop_statistics_t): set it before the call.
  size_t size;
  // Launched, with a result.
  uint64_t frames;
  // Ticks that passed without a launch.
  uint64_t missed;
  // Results after their deadline.
  uint64_t late;
  // Inputs that were not launched: overtaken by newer ones, or too late.
  uint64_t skipped;
  // Ticks at which no input was there.
  uint64_t starved;
  // Results that took the place of one that was not read.
  uint64_t overruns;
  // Launches that found another thread launching, and were tried again.
  uint64_t busy;
  // From the tick, or the input, until the result was there: nanoseconds.
  uint64_t done_p50_ns;
  uint64_t done_p99_ns;
  uint64_t done_p999_ns;
  uint64_t done_max_ns;
  // How much later than asked for the thread woke up: nanoseconds.
  uint64_t wake_p50_ns;
  uint64_t wake_p99_ns;
  uint64_t wake_p999_ns;
  uint64_t wake_max_ns;
  // 1 while it runs, 2 when it has ended.
  uint32_t state;
  // Why it has ended: 0 it has not, 1 it was stopped, 2 results were not read, 3 the channel was killed, 4 the channel was stopped, 5 memory was freed, 6 the session was freed,
  // 7 the chain was freed, 8 this is a fork's child, 9 a result did not come in time, 10 the launch was refused, 11 an error of doorbell's.
  uint32_t reason;
} doorbell_loop_statistics_t;

// Starts a loop: a thread of doorbell's that launches a chain for each frame, waits for it, and puts its result into a ring. No lock of CUDA's and no interpreter is in its way.
// Cost: a thread and some memory; milliseconds. Threads: any. Errors: DOORBELL_ARGUMENT with the reason, DOORBELL_HANDLE, DOORBELL_UNAVAILABLE where the kernel refuses what is required, DOORBELL_LIMIT, DOORBELL_CLOSED,
// DOORBELL_FORKED.
int32_t doorbell_loop_create(doorbell_t *doorbell,
                             const doorbell_loop_options_t *options,
                             doorbell_loop_t *frame_loop);

// Puts an input: its bytes, the producer's number for it, when its result is wanted (CLOCK_MONOTONIC; 0: as the options say), and a tag; number and tag come back in the result.
// `number` (may be null): which input it is, from 0.
// Cost: a copy of the bytes, and a system call where the loop sleeps. Threads: one at a time, else DOORBELL_BUSY. Errors: DOORBELL_FULL where the loop is behind, DOORBELL_ARGUMENT,
// DOORBELL_UNAVAILABLE where the loop has ended, DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FREED, DOORBELL_STOPPED, DOORBELL_FORKED.
int32_t doorbell_loop_put(doorbell_t *doorbell,
                          doorbell_loop_t frame_loop,
                          const void *data,
                          size_t bytes,
                          uint64_t sequence,
                          uint64_t deadline_ns,
                          uint64_t tag,
                          uint64_t *number);

// Takes the next result, if there is one: `there`. Its bytes are copied to `data` (may be null), as many as fit into `room`.
// Cost: a copy of the bytes. Threads: one at a time, else DOORBELL_BUSY. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT, DOORBELL_FORKED.
int32_t doorbell_loop_next(doorbell_t *doorbell,
                           doorbell_loop_t frame_loop,
                           doorbell_result_t *result,
                           void *data,
                           size_t room,
                           bool *there);

// Waits until results were signalled, or the loop has ended. Take all of them then.
// Cost: a system call. Threads: one at a time, else DOORBELL_BUSY. Errors: DOORBELL_TIMEOUT, DOORBELL_HANDLE, DOORBELL_FORKED.
int32_t doorbell_loop_wait(doorbell_t *doorbell,
                           doorbell_loop_t frame_loop,
                           uint64_t timeout_ns);

// A descriptor for poll, epoll and asyncio: readable when results were signalled, until doorbell_loop_wait() has returned. It goes with the loop.
// Cost: none. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED.
int32_t doorbell_loop_descriptor(doorbell_t *doorbell,
                                 doorbell_loop_t frame_loop,
                                 int32_t *descriptor);

// What a loop has done so far, and whether it runs. `text` (may be null) gets at most `room` bytes of English: why it has ended, or what the kernel refused of its scheduling; they end with a zero.
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

/* ======== Pauses of the recording, where the program runs under `doorbell record`. ======== */

// Pauses the recording of this process by `doorbell record`, for all its threads. In a pause only driver calls are recorded, and each
// operation costs a few nanoseconds more than without doorbell. The latest call decides, whichever thread makes it.
// `recorded` (may be null): whether the process is recorded. If it is not, the call has no effect.
// Cost: some 100 ns. Threads: any. Errors: none.
int32_t doorbell_recording_pause(bool *recorded);

// Resumes the recording of this process, for all its threads: after doorbell_recording_pause(), or with `doorbell record --capture`,
// which begins with a pause. `recorded`: as there.
// Cost: some 100 ns. Threads: any. Errors: none.
int32_t doorbell_recording_resume(bool *recorded);

// Whether this process runs under `doorbell record`, in a pause or not.
// Cost: some 100 ns. Threads: any. Errors: none.
int32_t doorbell_recording_get(bool *recorded);

/* ======== Orders in one call. ======== */

// An order that waits for nothing yet.
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

// Behind submissions of the same session. The tickets stay where they are until the order was used.
static inline doorbell_order_t doorbell_after(const doorbell_ticket_t *tickets, uint32_t count)
{
    doorbell_order_t order = doorbell_order();
    order.tickets = tickets;
    order.ticket_count = count;
    return order;
}

// Behind all that a CUDA stream has queued when the order is used; null is the default stream.
static inline doorbell_order_t doorbell_after_stream(void *stream)
{
    doorbell_order_t order = doorbell_order();
    order.flags = DOORBELL_ORDER_STREAM;
    order.stream = stream;
    return order;
}

// Behind what a CUDA event has recorded last when the order is used.
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

#include <mutex>
namespace work {
std::mutex queue_lock;
struct Queue {
    template <typename T> __attribute__((noinline)) void push(T by) {
        std::lock_guard<std::mutex> guard(queue_lock);
        n += by;
    }
    volatile long n = 0;
};
} // namespace work

int main() {
    work::Queue queue;
    for (int i = 0; i < 100; i++) queue.push(1L);
    return queue.n == 100 ? 0 : 1;
}

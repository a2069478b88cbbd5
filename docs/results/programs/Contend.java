import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.concurrent.locks.*;
import java.util.stream.*;

/** Many threads at locks of every kind that the runtime has, and allocation enough for collections. */
public class Contend {
    static int plain, fair, monitor;

    public static void main(String[] a) throws Exception {
        ReentrantLock lock = new ReentrantLock(), fairLock = new ReentrantLock(true);
        ReentrantReadWriteLock rw = new ReentrantReadWriteLock();
        Object m = new Object();
        AtomicLong read = new AtomicLong();
        CountDownLatch start = new CountDownLatch(1);
        Thread[] all = new Thread[100];
        for (int t = 0; t < all.length; t++) {
            all[t] = new Thread(() -> {
                try { start.await(); } catch (InterruptedException e) { throw new RuntimeException(e); }
                for (int i = 0; i < 200; i++) {
                    lock.lock(); try { plain++; } finally { lock.unlock(); }
                    if (i % 10 == 0) { fairLock.lock(); try { fair++; } finally { fairLock.unlock(); } }
                    synchronized (m) { monitor++; m.notifyAll(); }
                    rw.readLock().lock(); try { read.incrementAndGet(); } finally { rw.readLock().unlock(); }
                    byte[] b = new byte[10_000];
                    if (b[i] != 0) throw new RuntimeException();
                    if (i % 50 == 0) LockSupport.parkNanos(100_000);
                }
            });
            all[t].start();
        }
        start.countDown();
        for (Thread t : all) t.join();
        long squares = LongStream.range(0, 1_000_000).parallel().map(x -> x * x % 7).sum();
        ExecutorService pool = Executors.newFixedThreadPool(16);
        long tasks = 0;
        for (Future<Integer> f : pool.invokeAll(IntStream.range(0, 500).mapToObj(i -> (Callable<Integer>) () -> i).toList()))
            tasks += f.get();
        pool.shutdown();
        System.gc();
        System.out.println(plain + " " + fair + " " + monitor + " " + read + " " + squares + " " + tasks);
    }
}

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

public class Threads {
    static long n;
    static final Object o = new Object();

    public static void main(String[] a) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(16);
        List<Future<Long>> all = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            final int k = i;
            all.add(pool.submit(() -> {
                long s = 0;
                for (int j = 0; j < 2000; j++) {
                    synchronized (o) {
                        n++;
                    }
                    s += k + new byte[1000].length;
                }
                return s;
            }));
        }
        long s = 0;
        for (Future<Long> f : all) s += f.get();
        pool.shutdown();
        System.gc();
        System.out.println(n + " " + s);
    }
}

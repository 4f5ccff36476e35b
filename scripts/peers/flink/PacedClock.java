import java.util.concurrent.CountDownLatch;

/** The replay's clock, one to a JVM: event time `leadUs` is due as it starts, then `speed` seconds of it per second. */
public final class PacedClock {
    static long leadUs;
    static double speed;

    private static final CountDownLatch READY = new CountDownLatch(2);
    private static volatile long startNs;

    private PacedClock() {}

    /** A source has handed over its lead. Returns when the other one has, too: the clock runs. */
    static void leadHandedOver() throws InterruptedException {
        synchronized (READY) {
            READY.countDown();
            if (READY.getCount() == 0) {
                startNs = System.nanoTime();
            }
        }
        READY.await();
    }

    /** Since the start. */
    static long nowNs() {
        return System.nanoTime() - startNs;
    }

    /** When a tuple is due, since the start; below 0 in the lead. */
    static long dueNs(long timeUs) {
        return (long) ((timeUs - leadUs) * 1000 / speed);
    }

    /** The newest event time that is due. */
    static long dueUs(long nowNs) {
        return leadUs + (long) (nowNs * speed / 1000);
    }
}

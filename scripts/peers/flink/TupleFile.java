import java.io.IOException;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;

/** Tuples of three little-endian words each (ts, key, id), mapped into memory: reading them costs nearly nothing. */
final class TupleFile {
    private static final int WORDS = 3;
    private static final long CHUNK = 40_000_000; // tuples; a mapping holds less than 2^31 bytes
    private final LongBuffer[] chunks;
    final long tuples;

    TupleFile(String path) throws IOException {
        Answer.start();
        try (FileChannel channel = FileChannel.open(Path.of(path))) {
            tuples = channel.size() / (8 * WORDS);
            chunks = new LongBuffer[(int) ((tuples + CHUNK - 1) / CHUNK)];
            for (int chunk = 0; chunk < chunks.length; chunk++) {
                long first = chunk * CHUNK, count = Math.min(CHUNK, tuples - first);
                chunks[chunk] = channel.map(FileChannel.MapMode.READ_ONLY, first * 8 * WORDS, count * 8 * WORDS)
                        .order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
            }
        }
    }

    long ts(long tuple) {
        return word(tuple, 0);
    }

    long key(long tuple) {
        return word(tuple, 1);
    }

    long id(long tuple) {
        return word(tuple, 2);
    }

    private long word(long tuple, int word) {
        return chunks[(int) (tuple / CHUNK)].get((int) (tuple % CHUNK) * WORDS + word);
    }
}

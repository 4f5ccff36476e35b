import java.io.IOException;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.TypeSerializerSingleton;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;

/** A tuple of either stream, never changed once made, as three plain longs: no field of it goes through reflection. */
public final class PacedTuple {
    public static final int BYTES = 24;

    public final long time; // in us
    public final long key;
    public final long id;

    public PacedTuple(long time, long key, long id) {
        this.time = time;
        this.key = key;
        this.id = id;
    }

    public static final class Serializer extends TypeSerializerSingleton<PacedTuple> {
        static final Serializer INSTANCE = new Serializer();

        @Override
        public boolean isImmutableType() {
            return true;
        }

        @Override
        public PacedTuple createInstance() {
            return new PacedTuple(0, 0, 0);
        }

        @Override
        public PacedTuple copy(PacedTuple from) {
            return from;
        }

        @Override
        public PacedTuple copy(PacedTuple from, PacedTuple reuse) {
            return from;
        }

        @Override
        public int getLength() {
            return BYTES;
        }

        @Override
        public void serialize(PacedTuple tuple, DataOutputView target) throws IOException {
            target.writeLong(tuple.time);
            target.writeLong(tuple.key);
            target.writeLong(tuple.id);
        }

        @Override
        public PacedTuple deserialize(DataInputView source) throws IOException {
            return new PacedTuple(source.readLong(), source.readLong(), source.readLong());
        }

        @Override
        public PacedTuple deserialize(PacedTuple reuse, DataInputView source) throws IOException {
            return deserialize(source);
        }

        @Override
        public void copy(DataInputView source, DataOutputView target) throws IOException {
            target.write(source, BYTES);
        }

        @Override
        public TypeSerializerSnapshot<PacedTuple> snapshotConfiguration() {
            return new Snapshot();
        }
    }

    public static final class Snapshot extends SimpleTypeSerializerSnapshot<PacedTuple> {
        public Snapshot() {
            super(() -> Serializer.INSTANCE);
        }
    }

    /** Tells Flink of the serializer. */
    public static final class Information extends TypeInformation<PacedTuple> {
        @Override
        public boolean isBasicType() {
            return false;
        }

        @Override
        public boolean isTupleType() {
            return false;
        }

        @Override
        public int getArity() {
            return 1;
        }

        @Override
        public int getTotalFields() {
            return 1;
        }

        @Override
        public Class<PacedTuple> getTypeClass() {
            return PacedTuple.class;
        }

        @Override
        public boolean isKeyType() {
            return false;
        }

        @Override
        public TypeSerializer<PacedTuple> createSerializer(SerializerConfig config) {
            return Serializer.INSTANCE;
        }

        @Override
        public String toString() {
            return "PacedTuple";
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Information;
        }

        @Override
        public int hashCode() {
            return Information.class.hashCode();
        }

        @Override
        public boolean canEqual(Object other) {
            return other instanceof Information;
        }
    }
}

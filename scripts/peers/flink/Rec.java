import java.io.IOException;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.TypeSerializerSingleton;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;

/** A tuple, never changed after it is made, with a serializer by hand, so that nothing generic stands in its way. */
public final class Rec {
    static final int BYTES = 24;
    final long ts, key, id;

    Rec(long ts, long key, long id) {
        this.ts = ts;
        this.key = key;
        this.id = id;
    }

    public static final class Serializer extends TypeSerializerSingleton<Rec> {
        static final Serializer INSTANCE = new Serializer();

        @Override
        public boolean isImmutableType() {
            return true; // so that nothing has to be copied
        }

        @Override
        public Rec createInstance() {
            return new Rec(0, 0, 0);
        }

        @Override
        public Rec copy(Rec from) {
            return from;
        }

        @Override
        public Rec copy(Rec from, Rec reuse) {
            return from;
        }

        @Override
        public int getLength() {
            return BYTES;
        }

        @Override
        public void serialize(Rec rec, DataOutputView target) throws IOException {
            target.writeLong(rec.ts);
            target.writeLong(rec.key);
            target.writeLong(rec.id);
        }

        @Override
        public Rec deserialize(DataInputView source) throws IOException {
            return new Rec(source.readLong(), source.readLong(), source.readLong());
        }

        @Override
        public Rec deserialize(Rec reuse, DataInputView source) throws IOException {
            return deserialize(source);
        }

        @Override
        public void copy(DataInputView source, DataOutputView target) throws IOException {
            target.write(source, BYTES);
        }

        @Override
        public TypeSerializerSnapshot<Rec> snapshotConfiguration() {
            return new Snapshot();
        }
    }

    public static final class Snapshot extends SimpleTypeSerializerSnapshot<Rec> {
        public Snapshot() {
            super(() -> Serializer.INSTANCE);
        }
    }

    /** What tells Flink of the serializer. */
    public static final class Type extends TypeInformation<Rec> {
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
        public Class<Rec> getTypeClass() {
            return Rec.class;
        }

        @Override
        public boolean isKeyType() {
            return false;
        }

        @Override
        public TypeSerializer<Rec> createSerializer(SerializerConfig config) {
            return Serializer.INSTANCE;
        }

        @Override
        public String toString() {
            return "Rec";
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Type;
        }

        @Override
        public int hashCode() {
            return Type.class.hashCode();
        }

        @Override
        public boolean canEqual(Object other) {
            return other instanceof Type;
        }
    }
}

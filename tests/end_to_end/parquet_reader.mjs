// Answers questions about Parquet files with two readers that are not ours. A line of standard
// input is {"sql": …}, answered by DuckDB, or {"file": …}, all rows of it by hyparquet; the answer is
// one line: {"rows": …} or {"error": …}. Integers are strings.
import { DuckDBInstance } from '@duckdb/node-api';
import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { createInterface } from 'node:readline';

const base = await (await DuckDBInstance.create()).connect();
const text = (value) => JSON.stringify(value, (_, v) => (typeof v === 'bigint' ? String(v) : v));

async function answer({ sql, file }) {
  if (sql) return (await base.runAndReadAll(sql)).getRowObjectsJson();
  return parquetReadObjects({ file: await asyncBufferFromFile(file), compressors });
}

for await (const line of createInterface({ input: process.stdin })) {
  try {
    console.log(text({ rows: await answer(JSON.parse(line)) }));
  } catch (error) {
    console.log(text({ error: String(error) }));
  }
}

// The log as its tables have it, against what the writers were told and what the pages showed.

/** Everything that is wrong with the log; empty when nothing is. Answers count in the epoch that they were given in. */
export function audit(cluster, writers) {
  const wrong = [];
  const row = (text) => JSON.parse(text);
  const query = (statement) => {
    const text = cluster.sql(`SET search_path = inorder; SELECT row_to_json(t) FROM (${statement}) t`);
    return text === '' ? [] : text.split('\n').map(row);
  };
  const [meta] = query('SELECT epoch FROM meta');
  const partitions = query(
    'SELECT id, epoch, row, (SELECT max(row) FROM event WHERE partition = p.id) AS last FROM partition p ORDER BY id',
  );
  for (const { id, epoch, row: reached, last } of partitions) {
    if (epoch !== meta.epoch) wrong.push(`partition ${id} is of the epoch ${epoch}, the log of ${meta.epoch}`);
    if (last > reached) wrong.push(`row ${last} of partition ${id} lies above its last row ${reached}`);
  }
  const empty = partitions.filter(({ last }) => last === null).length;
  if (partitions.length < 2 || empty > 0) wrong.push(`${empty} of ${partitions.length} partitions have no event`);
  const events = query('SELECT partition, entity, seq, id, status, data FROM event ORDER BY partition, row');
  const byEntity = new Map();
  const byId = new Map();
  for (const event of events) {
    const history = byEntity.get(event.entity) ?? [];
    byEntity.set(event.entity, history);
    history.push(event);
    if (event.partition !== history[0].partition) wrong.push(`${event.entity} lies in two partitions`);
    if (event.seq !== history.length) wrong.push(`${event.entity} has ${event.seq} as its change ${history.length}`);
    if (event.id && byId.has(`${event.entity} ${event.id}`)) wrong.push(`${event.entity} has ${event.id} twice`);
    byId.set(`${event.entity} ${event.id}`, event);
    if (event.id && !writers.sent.has(event.id))
      wrong.push(`${event.entity} has ${event.id}, which was refused or never sent`);
    if (history.at(-2)?.status === 'completed') wrong.push(`${event.entity} changed after its end`);
  }
  for (const [id, { entity, seq, epoch }] of writers.acknowledged) {
    if (epoch === meta.epoch && byId.get(`${entity} ${id}`)?.seq !== seq) {
      wrong.push(`${id} was answered with ${entity} ${seq} and is not there`);
    }
  }
  for (const { name, seq, status, state } of query('SELECT name, seq, status, state FROM entity WHERE seq > 0')) {
    const history = byEntity.get(name) ?? [];
    if (seq !== history.length) wrong.push(`${name} has the head ${seq} of ${history.length}`);
    if (name.startsWith('topic/')) continue;
    const sum = Object.assign({}, ...history.map((event) => JSON.parse(event.data)));
    if (canonical(sum) !== canonical(JSON.parse(state))) wrong.push(`${name} has a state that its events do not make`);
    if ((history.at(-1)?.status ?? null) !== status) wrong.push(`${name} has a status that its events do not make`);
  }
  return { wrong, events: events.length, byEntity, epoch: meta.epoch };
}

/** What pages showed of the log's epoch and the log does not have. */
export function compare(pages, { byEntity, epoch }) {
  const wrong = [];
  for (const { name, shown, violations } of pages) {
    wrong.push(...violations);
    for (const [entity, { ids, epoch: of }] of shown) {
      if (of !== epoch) continue;
      const history = byEntity.get(entity) ?? [];
      for (const [seq, id] of ids) {
        if (history[seq - 1]?.id !== id)
          wrong.push(`${name}: showed ${id} as ${entity} ${seq}, the log has ${history[seq - 1]?.id}`);
      }
    }
  }
  return wrong;
}

/** JSON with sorted keys. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value) ?? 'null';
  const keys = Object.keys(value).sort();
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(',')}}`;
}

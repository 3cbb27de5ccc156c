import { Component, type ComponentChildren, h } from "preact";
import { useContext } from "preact/hooks";
import { Code } from "./code.tsx";
import { EnvironmentContext } from "./environment.ts";
import { Formula } from "./formula-view.tsx";
import { InlineView, plainText } from "./inline.tsx";
import type { BlockNode, Inline, ListItem, ListNode, TableNode } from "./nodes.ts";
import { format } from "./texts.ts";

interface BlockProps {
  readonly node: BlockNode;
  /**
   * Whether the block is in a list or a quotation. These have the direction of their first letter, so that all markers
   * are on one side. A browser finds that letter only in children without a direction of their own.
   */
  readonly inside?: boolean;
}

/** BlockView shows a block. It renders again only if the block changed. */
export class BlockView extends Component<BlockProps> {
  override shouldComponentUpdate(next: BlockProps): boolean {
    return next.node !== this.props.node;
  }

  override render() {
    return <Content {...this.props} />;
  }
}

function Content({ node, inside = false }: BlockProps) {
  const dir = inside ? undefined : "auto";
  switch (node.type) {
    case "paragraph":
      return (
        <p dir={dir}>
          <InlineView inline={node.inline} />
        </p>
      );
    case "heading":
      return <Heading level={node.level} inline={node.inline} dir={dir} />;
    case "code":
      return <Code node={node} />;
    case "quote":
      return (
        <blockquote dir="auto">
          <Blocks nodes={node.children} />
        </blockquote>
      );
    case "list":
      return <List node={node} />;
    case "table":
      return <Table node={node} />;
    case "rule":
      return <hr />;
    case "math":
      return (
        <div class="md-math-block">
          <Formula value={node.value} display source={node.source} />
        </div>
      );
    case "html":
    case "plain":
      return (
        <p class="md-plain" dir={dir}>
          {node.value}
        </p>
      );
    case "note":
      return null;
  }
}

/** Blocks shows the blocks of a list item, a quotation or a footnote. */
export function Blocks({ nodes }: { nodes: readonly BlockNode[] }) {
  return (
    <>
      {nodes.map((node, i) => (
        <BlockView key={i} node={node} inside />
      ))}
    </>
  );
}

function Heading({ level, inline, dir }: { level: number; inline: Inline; dir: "auto" | undefined }) {
  const { headingShift } = useContext(EnvironmentContext);
  const shifted = level + headingShift;
  const props = { dir, class: `md-h${level}`, ...(shifted > 6 && { "aria-level": shifted }) };
  return h(`h${Math.min(6, shifted)}`, props, <InlineView inline={inline} />);
}

const partSize = 32;

/**
 * Parts shows a long list of children in parts. A part renders again only if one of its children changed, so that the
 * cost of an update does not grow with the list.
 */
export function Parts<T>({ of, view }: { of: readonly T[]; view: (value: T, index: number) => ComponentChildren }) {
  const parts = [];
  for (let start = 0; start < of.length; start += partSize) {
    parts.push(<Part key={start} of={of as readonly unknown[]} start={start} view={view as PartProps["view"]} />);
  }
  return <>{parts}</>;
}

interface PartProps {
  readonly of: readonly unknown[];
  readonly start: number;
  readonly view: (value: unknown, index: number) => ComponentChildren;
}

class Part extends Component<PartProps> {
  override shouldComponentUpdate(next: PartProps): boolean {
    const { of, start, view } = this.props;
    if (next.view !== view) return true;
    for (let i = start; i < start + partSize; i++) if (of[i] !== next.of[i]) return true;
    return false;
  }

  override render() {
    const { of, start, view } = this.props;
    return <>{of.slice(start, start + partSize).map((value, i) => view(value, start + i))}</>;
  }
}

function List({ node }: { node: ListNode }) {
  const tasks = node.items.some((item) => item.task !== null);
  const props = { class: [node.tight && "md-tight", tasks && "md-tasks"].filter(Boolean).join(" "), dir: "auto" as const };
  const items = <Parts of={node.items} view={itemView} />;
  return node.ordered ? (
    <ol start={node.start} {...props}>
      {items}
    </ol>
  ) : (
    <ul {...props}>{items}</ul>
  );
}

function itemView(item: ListItem, index: number) {
  return <Item key={index} item={item} />;
}

class Item extends Component<{ item: ListItem }> {
  override shouldComponentUpdate(next: { item: ListItem }): boolean {
    return next.item !== this.props.item;
  }

  override render({ item }: { item: ListItem }) {
    return (
      <li class={item.task === null ? undefined : "md-task"}>
        {item.task !== null && <Task done={item.task} />}
        <Blocks nodes={item.children} />
      </li>
    );
  }
}

function Task({ done }: { done: boolean }) {
  const { texts } = useContext(EnvironmentContext);
  return <input type="checkbox" disabled checked={done} aria-label={done ? texts.taskDone : texts.taskOpen} />;
}

function Table({ node }: { node: TableNode }) {
  const { texts } = useContext(EnvironmentContext);
  const columns = node.head.map((cell) => plainText(cell.nodes)).filter(Boolean).join(", ").slice(0, 120);
  const align = (i: number) => (node.align[i] ? `md-${node.align[i]}` : undefined);
  return (
    <div class="md-table" role="region" tabIndex={0} aria-label={columns ? format(texts.tableOf, { columns }) : texts.table}>
      <table>
        <thead>
          <tr>
            {node.head.map((cell, i) => (
              <th key={i} scope="col" dir="auto" class={align(i)}>
                <InlineView inline={cell} />
              </th>
            ))}
          </tr>
        </thead>
        {node.rows.length > 0 && (
          <tbody>
            <Parts of={rowsOf(node)} view={rowView} />
          </tbody>
        )}
      </table>
    </div>
  );
}

interface Row {
  readonly cells: readonly Inline[];
  readonly align: TableNode["align"];
}

/** A row keeps its object as long as its cells do, so that its part need not render again. */
const rows = new WeakMap<readonly Inline[], Row>();

function rowsOf(node: TableNode): readonly Row[] {
  return node.rows.map((cells) => {
    const known = rows.get(cells);
    if (known && known.align.join() === node.align.join()) return known;
    const row = { cells, align: node.align };
    rows.set(cells, row);
    return row;
  });
}

function rowView(row: Row, index: number) {
  return (
    <tr key={index}>
      {row.cells.map((cell, i) => (
        <td key={i} dir="auto" class={row.align[i] ? `md-${row.align[i]}` : undefined}>
          <InlineView inline={cell} />
        </td>
      ))}
    </tr>
  );
}
